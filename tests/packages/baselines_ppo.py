"""Stable-Baselines3: PPO plays CartPole; its optimizer steps follow from what the policy did."""
import gymnasium
import stable_baselines3
import torch

from options import Options


def main():
    options = Options(batch=512)
    model = stable_baselines3.PPO(
        "MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=options.size(64, 512),
        batch_size=options.size(32, options.batch),
        n_epochs=2, seed=1, device=str(options.device),
        policy_kwargs={"net_arch": [options.size(16, 2048)] * 3})
    model.learn(options.size(128, 1024))
    print("parameters finite", all(bool(torch.isfinite(parameter).all()) for parameter in model.policy.parameters()))


if __name__ == "__main__":
    main()
