"""What every test may rely on, however the suite was started."""

import signal

# A suite started in the background (``make test &``, some CI runners) has SIGINT ignored, and so would every process
# that a test starts to press Ctrl-C on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
