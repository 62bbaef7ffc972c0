"""Known by an entry point only."""


def compile_entry(gm, inputs, **kwargs):
    print("compile_entry", kwargs)
    return gm.forward
