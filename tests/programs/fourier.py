"""torch.fft as stock PyTorch runs it with cuFFT: one to three dimensions, real and complex, lengths with large primes,
convolution by spectrum, and a bounded cache of plans.

Checks shapes, gradients, and the work area that the plan takes of the program's memory."""
import torch

device = "cuda"


def peak_of(transform, inputs):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = transform(inputs)
    return result, torch.cuda.max_memory_allocated() - before


for dtype in (torch.float32, torch.float64):
    signal = torch.randn(8, 4096, device=device, dtype=dtype, requires_grad=True)
    spectrum = torch.fft.rfft(signal)
    assert spectrum.shape == (8, 2049) and spectrum.is_complex()
    back = torch.fft.irfft(spectrum, n=4096)
    assert back.shape == signal.shape
    back.sum().backward()
    assert signal.grad.shape == signal.shape
    image = torch.randn(4, 3, 64, 64, device=device, dtype=dtype)
    assert torch.fft.fft2(image).shape == image.shape
    assert torch.fft.rfft2(image).shape == (4, 3, 64, 33)
    assert torch.fft.ifft2(torch.fft.fft2(image)).shape == image.shape
    volume = torch.randn(2, 16, 16, 16, device=device, dtype=dtype)
    assert torch.fft.fftn(volume, dim=(1, 2, 3)).shape == volume.shape
    assert torch.fft.irfftn(torch.fft.rfftn(volume), s=volume.shape).shape == volume.shape
assert torch.fft.fft(torch.randn(8, 1024, device=device, dtype=torch.float16)).dtype == torch.complex32
assert torch.stft(torch.randn(4, 16000, device=device), 400, return_complex=True).shape == (4, 201, 161)

# A length that no small factors divide needs a work area several times its data.
smooth = torch.randn(64, 4096, device=device, dtype=torch.complex64)
prime = torch.randn(64, 4099, device=device, dtype=torch.complex64)
data = smooth.numel() * smooth.element_size()
_, small = peak_of(torch.fft.fft, smooth)
_, large = peak_of(torch.fft.fft, prime)
assert data <= small <= 3 * data, (small, data)
assert large >= 4 * data, (large, data)

torch.backends.cuda.cufft_plan_cache.max_size = 4
for length in range(100, 120):
    torch.fft.fft(torch.randn(length, device=device, dtype=torch.complex64))
assert torch.backends.cuda.cufft_plan_cache.size <= 4
torch.cuda.synchronize()
print("fourier: all transforms and precisions")
