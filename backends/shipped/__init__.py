"""The backends that come with fxminify."""
