"""What the terminal shows, and what every verb of the `minify` command shares."""
