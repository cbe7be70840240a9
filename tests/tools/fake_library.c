int spillway_fake_library = 1;
