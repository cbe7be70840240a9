"""diffusers: a U-Net learns to predict noise, with a moving average of its weights, then its pipeline draws."""
import diffusers
import diffusers.training_utils
import torch

from options import Options, tell


def main():
    options = Options(batch=16)
    model = diffusers.UNet2DModel(
        sample_size=options.size(16, 128), in_channels=3, out_channels=3, layers_per_block=options.size(1, 2),
        block_out_channels=options.size((32, 64), (128, 128, 256, 256, 512, 512)),
        down_block_types=options.size(("DownBlock2D", "AttnDownBlock2D"), ("DownBlock2D",) * 4 + (
            "AttnDownBlock2D", "DownBlock2D")),
        up_block_types=options.size(("AttnUpBlock2D", "UpBlock2D"), ("UpBlock2D", "AttnUpBlock2D") + (
            "UpBlock2D",) * 4)).to(options.device)
    schedule = diffusers.DDPMScheduler(num_train_timesteps=1000)
    average = diffusers.training_utils.EMAModel(model.parameters(), model_cls=type(model), model_config=model.config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        images = torch.randn(options.batch, 3, model.config.sample_size, model.config.sample_size).to(options.device)
        noise = torch.randn(images.shape).to(options.device)
        times = torch.randint(0, 1000, (options.batch,)).to(options.device)
        predicted = model(schedule.add_noise(images, noise, times), times).sample
        loss = torch.nn.functional.mse_loss(predicted, noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.step(model.parameters())
        tell(step, loss)
    pipeline = diffusers.DDIMPipeline(unet=model, scheduler=diffusers.DDIMScheduler()).to(options.device)
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(batch_size=2, num_inference_steps=2, generator=torch.Generator().manual_seed(1), output_type="np")
    print(f"drawn {drawn.images.shape} {drawn.images.mean():.3f}")


if __name__ == "__main__":
    main()
