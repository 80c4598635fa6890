"""What an aggregate keeps of the rows of a group, and how its result comes out of that."""
