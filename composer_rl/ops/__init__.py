"""Pure tensor maths."""
