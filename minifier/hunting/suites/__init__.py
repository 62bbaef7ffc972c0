"""The suites that come with fxminify. They import torch, and run in workers."""
