"""What operations consist of and what their calls may leave out, asked of torch. Only workers import this."""
