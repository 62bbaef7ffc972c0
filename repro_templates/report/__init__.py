"""What is said and drawn about a failure: sentences, pictures, the HTML report."""
