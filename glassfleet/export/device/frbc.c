static inline int gf_answer(const double *x, int *decided)
{
    double z[GF_INPUTS], upper[GF_INPUTS];
    int lower[GF_INPUTS];
    gf_scale(x, z);
    gf_memberships(z, lower, upper);
    int rule = GF_DEFAULT;
    double best = -1.0;
    for (int i = 0; i < GF_RULES; i++) {
        double value = gf_strength(i, lower, upper);
        if (!(value > 0.0))
            continue;
        if (GF_WEIGHTED)
            value = value * gf_weight[i];
        if (value > best || (value == best && gf_rank[i] < gf_rank[rule])) {
            rule = i;
            best = value;
        }
    }
    *decided = rule;
    return gf_class[rule];
}
