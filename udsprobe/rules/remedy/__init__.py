"""What to do about each kind of trouble, by server: a table of lines and sentences, and its use."""
