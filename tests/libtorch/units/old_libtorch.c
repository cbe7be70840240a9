int spillway_old_libtorch;
