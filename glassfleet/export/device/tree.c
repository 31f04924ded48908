static inline gf_output gf_answer(const double *x, int *decided)
{
    int node = 0;
    while (gf_feature[node] >= 0)
        node = x[gf_feature[node]] <= gf_threshold[node] ? node + 1 : gf_right[node];
    *decided = gf_rule_of[node];
    return gf_answers[node];
}
