/* The environments that come with Troupe. */
#ifndef TRP_ENVS_BUILTIN_H
#define TRP_ENVS_BUILTIN_H

#include <troupe/env.h>

extern const trp_env_impl acrobot_impl;
extern const trp_env_impl bsuite_bandit_impl;
extern const trp_env_impl bsuite_bandit_noise_impl;
extern const trp_env_impl bsuite_bandit_scale_impl;
extern const trp_env_impl bsuite_cartpole_impl;
extern const trp_env_impl bsuite_cartpole_noise_impl;
extern const trp_env_impl bsuite_cartpole_scale_impl;
extern const trp_env_impl bsuite_cartpole_swingup_impl;
extern const trp_env_impl bsuite_catch_impl;
extern const trp_env_impl bsuite_catch_noise_impl;
extern const trp_env_impl bsuite_catch_scale_impl;
extern const trp_env_impl bsuite_deep_sea_impl;
extern const trp_env_impl bsuite_deep_sea_stochastic_impl;
extern const trp_env_impl bsuite_discounting_chain_impl;
extern const trp_env_impl bsuite_memory_len_impl;
extern const trp_env_impl bsuite_memory_size_impl;
extern const trp_env_impl bsuite_mountain_car_impl;
extern const trp_env_impl bsuite_mountain_car_noise_impl;
extern const trp_env_impl bsuite_mountain_car_scale_impl;
extern const trp_env_impl bsuite_umbrella_distract_impl;
extern const trp_env_impl bsuite_umbrella_length_impl;
extern const trp_env_impl cartpole_impl;
extern const trp_env_impl catch_impl;
extern const trp_env_impl cliff_walking_impl;
extern const trp_env_impl cliff_walking_slippery_impl;
extern const trp_env_impl frozen_lake_impl;
extern const trp_env_impl frozen_lake_8x8_impl;
extern const trp_env_impl mountain_car_impl;
extern const trp_env_impl mountain_car_continuous_impl;
extern const trp_env_impl pendulum_impl;
extern const trp_env_impl taxi_impl;

/* By its name alone. NOT_FOUND lists the names there are. */
TRP_MUST_USE trp_status env_impl_find(const char *name, const trp_env_impl **impl);

/* What is wrong with a spec; NULL: nothing. */
const char *env_spec_fault(const trp_env_spec *spec);

#endif
