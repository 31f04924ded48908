static inline void gf_take(gf_state *s, int rule, double strength)
{
    double weight = strength / s->scale;
    gf_match(s, rule, strength);
    s->total = s->total + weight;
    s->terms = s->terms + weight * gf_polynomial(rule, s->z);
    s->excess = s->excess + weight * gf_beyond(rule, s->z);
}

static inline gf_output gf_answer(const double *x, int *decided)
{
    double z[GF_COLUMNS];
    gf_state s = {z, GF_DEFAULT, -1.0, 1.0, 0.0, 0.0, 0.0, NULL};
    gf_scale(x, z);
    gf_fire(x, &s);
    *decided = s.rule;
    if (!(s.best > 0.0))
        return gf_linked(gf_polynomial(GF_DEFAULT, z), gf_beyond(GF_DEFAULT, z));
    if (GF_RELATIVE) { /* once more, with strengths over the highest */
        s.scale = s.best;
        s.total = s.terms = s.excess = 0.0;
        gf_fire(x, &s);
    }
    if (GF_PARTITION)
        s.total = 1.0;
    return gf_linked(s.terms / s.total, s.excess / s.total);
}
