enum { GF_SCORES = GF_CONSTANTS_COUNT / GF_VOTES_COUNT }; /* of two classes the second's alone; the first one's is 0 */

static inline void gf_take(gf_state *s, int rule, double strength)
{
    gf_match(s, rule, strength);
    for (int c = 0; c < GF_SCORES; c++)
        s->scores[c] = s->scores[c] + strength * gf_polynomial(rule * GF_SCORES + c, s->z);
}

static inline gf_output gf_answer(const double *x, int *decided)
{
    double z[GF_COLUMNS], scores[GF_SCORES] = {0.0};
    gf_state s = {z, GF_DEFAULT, -1.0, 1.0, 0.0, 0.0, 0.0, scores};
    int best = 0;
    gf_scale(x, z);
    gf_fire(x, &s);
    *decided = s.rule;
    if (GF_SCORES == 1)
        return scores[0] > 0.0 ? 1 : 0;
    for (int c = 1; c < GF_SCORES; c++)
        if (scores[c] > scores[best])
            best = c;
    return best;
}
