/* Everything: what a launch file includes. */
#ifndef TRP_TROUPE_H
#define TRP_TROUPE_H

#include <troupe/actor.h>
#include <troupe/actor_critic_losses.h>
#include <troupe/adder.h>
#include <troupe/agent.h>
#include <troupe/bytes.h>
#include <troupe/checkpoint.h>
#include <troupe/columns.h>
#include <troupe/device.h>
#include <troupe/distributions.h>
#include <troupe/dqn.h>
#include <troupe/env.h>
#include <troupe/item.h>
#include <troupe/learner.h>
#include <troupe/log.h>
#include <troupe/losses.h>
#include <troupe/metric.h>
#include <troupe/moments.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/options.h>
#include <troupe/params.h>
#include <troupe/policy.h>
#include <troupe/policy_losses.h>
#include <troupe/ppo.h>
#include <troupe/program.h>
#include <troupe/publisher.h>
#include <troupe/replay.h>
#include <troupe/returns.h>
#include <troupe/rng.h>
#include <troupe/rollout.h>
#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include <troupe/shards.h>
#include <troupe/source.h>
#include <troupe/status.h>
#include <troupe/stop.h>
#include <troupe/structured_writer.h>
#include <troupe/tensor.h>
#include <troupe/torso.h>
#include <troupe/updater.h>
#include <troupe/wrapper.h>
#include <troupe/writer.h>

#endif
