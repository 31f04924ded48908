static inline void gf_fire(const double *x, gf_state *s)
{
    int node = 0;
    while (gf_feature[node] >= 0)
        node = x[gf_feature[node]] <= gf_threshold[node] ? node + 1 : gf_right[node];
    gf_take(s, gf_rule[node], 1.0);
}
