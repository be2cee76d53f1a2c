"""PHP: the functions that its interpreter executes, as its own memory tells them."""
