"""Tables and arrays to bounded feature matrices by public bounds only, and their spread over parties."""
