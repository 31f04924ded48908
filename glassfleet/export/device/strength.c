static inline double gf_strength(int rule, const int *lower, const double *upper)
{
    double strength = 1.0;
    for (int f = 0; f < GF_CONDITIONS; f++) {
        int side = gf_sets[rule][f] - lower[f];
        strength = strength * (side == 0 ? 1.0 - upper[f] : side == 1 ? upper[f] : 0.0);
        if (!(strength > 0.0))
            return 0.0;
    }
    return strength;
}
