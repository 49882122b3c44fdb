"""netspy create: a spider or an item to start from."""
