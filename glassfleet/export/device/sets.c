static inline void gf_memberships(const double *z, int *lower, double *upper)
{
    for (int f = 0; f < GF_INPUTS; f++) {
        double position = z[f] * (double)(GF_N_SETS - 1);
        int below = (int)position; /* not negative, so this is the floor */
        if (below > GF_N_SETS - 2)
            below = GF_N_SETS - 2;
        lower[f] = below;
        upper[f] = position - (double)below;
    }
}
