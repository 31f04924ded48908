static inline void gf_fire(const double *x, gf_state *s)
{
    double upper[GF_INPUTS];
    int lower[GF_INPUTS];
    (void)x;
    gf_memberships(s->z, lower, upper);
    for (int i = 0; i < GF_SETS_COUNT; i++) {
        double strength = 1.0;
        for (int f = 0; f < GF_SETS_WIDTH && strength > 0.0; f++) {
            int side = gf_sets[i * GF_SETS_WIDTH + f] - lower[f];
            strength = strength * (side == 0 ? 1.0 - upper[f] : side == 1 ? upper[f] : 0.0);
        }
        if (strength > 0.0)
            gf_take(s, i, strength);
    }
}
