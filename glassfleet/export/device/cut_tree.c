static inline void gf_fire(const double *x, gf_state *s)
{
    double position[GF_KNOTS_COUNT], degree[2 * GF_SPLITS_COUNT + 1];
    (void)x;
    for (int f = 0; f < GF_KNOTS_COUNT; f++) {
        int lower = 0, at = f * GF_KNOTS_WIDTH; /* shorter lines end with 2: no scaled input gets there */
        while (lower + 2 < GF_KNOTS_WIDTH && s->z[f] >= gf_knots[at + lower + 1])
            lower++;
        position[f] = (double)lower + (s->z[f] - gf_knots[at + lower]) / (gf_knots[at + lower + 1] - gf_knots[at + lower]);
    }
    degree[0] = 1.0;
    for (int i = 0; i < GF_SPLITS_COUNT; i++) {
        int node = gf_splits[3 * i];
        double low = (double)gf_splits[3 * i + 2] + 1.0 - position[gf_splits[3 * i + 1]];
        low = low < 0.0 ? 0.0 : low > 1.0 ? 1.0 : low;
        if (GF_CRISP)
            low = low >= 0.5 ? 1.0 : 0.0;
        degree[2 * i + 1] = degree[node] * low;
        degree[2 * i + 2] = degree[node] * (1.0 - low);
    }
    for (int i = 0; i < GF_LEAVES_COUNT; i++)
        if (degree[gf_leaves[i]] > 0.0)
            gf_take(s, i, degree[gf_leaves[i]]);
}
