static inline double gf_answer(const double *x, int *decided)
{
    double z[GF_INPUTS], upper[GF_INPUTS];
    int lower[GF_INPUTS];
    gf_scale(x, z);
    gf_memberships(z, lower, upper);
    int rule = GF_DEFAULT;
    double best = 0.0;
    for (int i = 0; i < GF_RULES; i++) {
        double strength = gf_strength(i, lower, upper);
        if (strength > best || (strength == best && strength > 0.0 && gf_rank[i] < gf_rank[rule])) {
            rule = i;
            best = strength;
        }
    }
    *decided = rule;
    double output;
    if (!GF_AVERAGED || !(best > 0.0)) {
        output = gf_polynomial(rule, z);
    } else {
        double total = 0.0, terms = 0.0;
        for (int i = 0; i < GF_RULES; i++) {
            double strength = gf_strength(i, lower, upper);
            if (strength != 0.0) {
                double weight = strength / best;
                total = total + weight;
                terms = terms + weight * gf_polynomial(i, z);
            }
        }
        output = terms / total;
    }
    return gf_target_low + output * (gf_target_high - gf_target_low);
}
