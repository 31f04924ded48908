static inline void gf_take(gf_state *s, int rule, double strength)
{
    gf_match(s, rule, strength);
}

static inline gf_output gf_answer(const double *x, int *decided)
{
    double z[GF_COLUMNS];
    gf_state s = {z, GF_DEFAULT, -1.0, 1.0, 0.0, 0.0, 0.0, NULL};
    gf_scale(x, z);
    gf_fire(x, &s);
    *decided = s.rule;
    return gf_votes[s.rule];
}
