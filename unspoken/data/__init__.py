"""Tables and arrays as feature matrices bounded by public bounds, and their split over parties."""
