typedef struct {
    const double *z;
    int rule;
    double best, scale, total, terms, excess;
    double *scores;
} gf_state;

static inline void gf_match(gf_state *s, int rule, double strength)
{
    double measure = strength;
    if (GF_DIVISORS_COUNT > 0)
        measure = strength / gf_divisors[rule];
    if (GF_FACTORS_COUNT > 0)
        measure = strength * gf_factors[rule];
    if (measure > s->best || (measure == s->best && gf_rank[rule] < gf_rank[s->rule])) {
        s->rule = rule;
        s->best = measure;
    }
}

static inline void gf_fire(const double *x, gf_state *s);
