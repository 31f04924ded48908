"""Published models on a vehicle: fetched, followed, scored."""
