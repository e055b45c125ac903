/* What the option tables of agents share: words, and numbers as somebody meant them. */
#ifndef TRP_AGENTS_OPTIONS_H
#define TRP_AGENTS_OPTIONS_H

/* Of trp_torso, trp_activation, trp_core, trp_precision, trp_optimizer_kind, trp_rate_schedule. */
extern const char *const option_networks[];
extern const char *const option_activations[];
extern const char *const option_cores[];
extern const char *const option_precisions[];
extern const char *const option_optimizers[];
extern const char *const option_schedules[];

/* What was meant by 0.6, of which a float is the nearest one. */
double option_decimal(float value);

/* An option of 0 means itself; in an optimizer it would be the default. */
double option_itself(double value);

#endif
