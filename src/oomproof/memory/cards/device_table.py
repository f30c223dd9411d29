"""The table of GPUs: one row each. A new GPU is a new row.

``total`` is what CUDA reports (torch.cuda.get_device_properties().total_memory), in GiB. It differs a little between
drivers, newer ones keep more, and Windows shows more; the rows err to the small side. A row without «estimated»
has a figure that out-of-memory messages of that GPU are known to show, or up to 2 % less; not each was looked up again.
The other rows have what is usual for their family. Of a GPU that comes in two sizes the usual one stands first.

Arithmetic and bandwidth are the vendor's peak figures to the best of our knowledge, and decide nothing yet. Half is
dense fp16 with fp32 accumulation: tensor cores where there are any, and fp32 speed where half precision is slower.
"""

from __future__ import annotations

from typing import NamedTuple


class DeviceRow(NamedTuple):
    name: str
    gigabytes: int
    """the size on the box"""
    total: float
    """GiB as CUDA reports them"""
    capability: tuple[int, int]
    tflops: float
    half_tflops: float
    bandwidth: float
    """10^9 bytes a second"""
    estimated: bool = False


ARCHITECTURES = {
    (3, 7): "kepler",
    (5, 2): "maxwell",
    (6, 0): "pascal",
    (6, 1): "pascal",
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 6): "ampere",
    (8, 7): "ampere",
    (8, 9): "ada",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (12, 0): "blackwell",
}

MAXWELL, PASCAL, VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL = (
    (5, 2), (6, 1), (7, 0), (7, 5), (8, 6), (8, 9), (9, 0), (12, 0),
)  # fmt: skip
ESTIMATED = True

# fmt: off
GEFORCE = (
    DeviceRow("GTX 960", 4, 3.94, MAXWELL, 2.3, 2.3, 112, ESTIMATED),
    DeviceRow("GTX 970", 4, 3.94, MAXWELL, 3.9, 3.9, 224, ESTIMATED),
    DeviceRow("GTX 980", 4, 3.94, MAXWELL, 5.0, 5.0, 224, ESTIMATED),
    DeviceRow("GTX 980 Ti", 6, 5.93, MAXWELL, 6.1, 6.1, 336, ESTIMATED),
    DeviceRow("TITAN X Maxwell", 12, 11.92, MAXWELL, 6.7, 6.7, 336, ESTIMATED),
    DeviceRow("GTX 1050", 2, 1.95, PASCAL, 1.9, 1.9, 112, ESTIMATED),
    DeviceRow("GTX 1050 Ti", 4, 3.94, PASCAL, 2.1, 2.1, 112, ESTIMATED),
    DeviceRow("GTX 1060", 6, 5.93, PASCAL, 4.4, 4.4, 192, ESTIMATED),
    DeviceRow("GTX 1060", 3, 2.94, PASCAL, 3.9, 3.9, 192, ESTIMATED),
    DeviceRow("GTX 1070", 8, 7.92, PASCAL, 6.5, 6.5, 256, ESTIMATED),
    DeviceRow("GTX 1070 Ti", 8, 7.92, PASCAL, 8.2, 8.2, 256, ESTIMATED),
    DeviceRow("GTX 1080", 8, 7.92, PASCAL, 8.9, 8.9, 320, ESTIMATED),
    DeviceRow("GTX 1080 Ti", 11, 10.91, PASCAL, 11.3, 11.3, 484),
    DeviceRow("GTX 1650", 4, 3.81, TURING, 3.0, 6.0, 128, ESTIMATED),
    DeviceRow("GTX 1650 Ti", 4, 3.81, TURING, 3.0, 6.0, 192, ESTIMATED),
    DeviceRow("GTX 1650 SUPER", 4, 3.81, TURING, 4.4, 8.8, 192, ESTIMATED),
    DeviceRow("GTX 1660", 6, 5.79, TURING, 5.0, 10.0, 192, ESTIMATED),
    DeviceRow("GTX 1660 SUPER", 6, 5.79, TURING, 5.0, 10.0, 336, ESTIMATED),
    DeviceRow("GTX 1660 Ti", 6, 5.79, TURING, 5.4, 10.9, 288, ESTIMATED),
    DeviceRow("RTX 2060", 6, 5.76, TURING, 6.5, 25.8, 336, ESTIMATED),
    DeviceRow("RTX 2060", 12, 11.60, TURING, 7.2, 28.7, 336, ESTIMATED),
    DeviceRow("RTX 2060 SUPER", 8, 7.76, TURING, 7.2, 28.7, 448, ESTIMATED),
    DeviceRow("RTX 2070", 8, 7.76, TURING, 7.5, 29.9, 448, ESTIMATED),
    DeviceRow("RTX 2070 SUPER", 8, 7.76, TURING, 9.1, 36.3, 448, ESTIMATED),
    DeviceRow("RTX 2080", 8, 7.76, TURING, 10.1, 40.3, 448, ESTIMATED),
    DeviceRow("RTX 2080 SUPER", 8, 7.76, TURING, 11.2, 44.6, 496, ESTIMATED),
    DeviceRow("RTX 2080 Ti", 11, 10.57, TURING, 13.4, 53.8, 616),
    DeviceRow("TITAN X", 12, 11.91, PASCAL, 11.0, 11.0, 480, ESTIMATED),
    DeviceRow("TITAN Xp", 12, 11.90, PASCAL, 12.1, 12.1, 548, ESTIMATED),
    DeviceRow("TITAN V", 12, 11.77, VOLTA, 14.9, 119.2, 653, ESTIMATED),
    DeviceRow("TITAN RTX", 24, 23.62, TURING, 16.3, 130.5, 672, ESTIMATED),
    DeviceRow("RTX 3050", 8, 7.63, AMPERE, 9.1, 18.2, 224, ESTIMATED),
    DeviceRow("RTX 3050", 6, 5.64, AMPERE, 6.8, 13.5, 168, ESTIMATED),
    DeviceRow("RTX 3060", 12, 12622168064 / 2**30, AMPERE, 12.7, 25.5, 360),
    DeviceRow("RTX 3060", 8, 7.63, AMPERE, 12.7, 25.5, 240, ESTIMATED),
    DeviceRow("RTX 3060 Ti", 8, 7.66, AMPERE, 16.2, 32.4, 448, ESTIMATED),
    DeviceRow("RTX 3070", 8, 7.66, AMPERE, 20.3, 40.6, 448),
    DeviceRow("RTX 3070 Ti", 8, 7.66, AMPERE, 21.7, 43.5, 608, ESTIMATED),
    DeviceRow("RTX 3080", 10, 9.64, AMPERE, 29.8, 59.5, 760),
    DeviceRow("RTX 3080", 12, 11.60, AMPERE, 30.6, 61.3, 912, ESTIMATED),
    DeviceRow("RTX 3080 Ti", 12, 11.63, AMPERE, 34.1, 68.2, 912, ESTIMATED),
    DeviceRow("RTX 3090", 24, 23.56, AMPERE, 35.6, 71.2, 936),
    DeviceRow("RTX 3090 Ti", 24, 23.55, AMPERE, 40.0, 80.0, 1008, ESTIMATED),
    DeviceRow("RTX 4060", 8, 7.62, ADA, 15.1, 30.2, 272, ESTIMATED),
    DeviceRow("RTX 4060 Ti", 8, 7.62, ADA, 22.1, 44.1, 288, ESTIMATED),
    DeviceRow("RTX 4060 Ti", 16, 15.57, ADA, 22.1, 44.1, 288, ESTIMATED),
    DeviceRow("RTX 4070", 12, 11.60, ADA, 29.1, 58.3, 504, ESTIMATED),
    DeviceRow("RTX 4070 SUPER", 12, 11.60, ADA, 35.5, 71.0, 504, ESTIMATED),
    DeviceRow("RTX 4070 Ti", 12, 11.60, ADA, 40.1, 80.2, 504, ESTIMATED),
    DeviceRow("RTX 4070 Ti SUPER", 16, 15.56, ADA, 44.1, 88.2, 672, ESTIMATED),
    DeviceRow("RTX 4080", 16, 15.56, ADA, 48.7, 97.5, 717, ESTIMATED),
    DeviceRow("RTX 4080 SUPER", 16, 15.56, ADA, 52.2, 104.4, 736, ESTIMATED),
    DeviceRow("RTX 4090", 24, 23.52, ADA, 82.6, 165.2, 1008),
    DeviceRow("RTX 5050", 8, 7.52, BLACKWELL, 13.2, 26.3, 320, ESTIMATED),
    DeviceRow("RTX 5060", 8, 7.52, BLACKWELL, 19.2, 38.4, 448, ESTIMATED),
    DeviceRow("RTX 5060 Ti", 8, 7.52, BLACKWELL, 23.7, 47.4, 448, ESTIMATED),
    DeviceRow("RTX 5060 Ti", 16, 15.44, BLACKWELL, 23.7, 47.4, 448),
    DeviceRow("RTX 5070", 12, 11.48, BLACKWELL, 30.9, 61.7, 672, ESTIMATED),
    DeviceRow("RTX 5070 Ti", 16, 15.44, BLACKWELL, 43.9, 87.9, 896, ESTIMATED),
    DeviceRow("RTX 5080", 16, 15.44, BLACKWELL, 56.3, 112.6, 960, ESTIMATED),
    DeviceRow("RTX 5090", 32, 31.35, BLACKWELL, 104.8, 209.5, 1792),
)

LAPTOP = (
    DeviceRow("RTX 3050 Laptop", 4, 3.68, AMPERE, 7.1, 14.2, 192, ESTIMATED),
    DeviceRow("RTX 3050 Ti Laptop", 4, 3.68, AMPERE, 8.7, 17.4, 192, ESTIMATED),
    DeviceRow("RTX 3060 Laptop", 6, 5.64, AMPERE, 10.9, 21.9, 336, ESTIMATED),
    DeviceRow("RTX 3070 Laptop", 8, 7.63, AMPERE, 16.6, 33.2, 448, ESTIMATED),
    DeviceRow("RTX 3070 Ti Laptop", 8, 7.63, AMPERE, 16.6, 33.2, 448, ESTIMATED),
    DeviceRow("RTX 3080 Laptop", 8, 7.63, AMPERE, 19.0, 38.0, 448, ESTIMATED),
    DeviceRow("RTX 3080 Laptop", 16, 15.56, AMPERE, 19.0, 38.0, 448, ESTIMATED),
    DeviceRow("RTX 3080 Ti Laptop", 16, 15.56, AMPERE, 23.6, 47.2, 512, ESTIMATED),
    DeviceRow("RTX 4050 Laptop", 6, 5.62, ADA, 9.0, 18.0, 192, ESTIMATED),
    DeviceRow("RTX 4060 Laptop", 8, 7.60, ADA, 11.6, 23.2, 256, ESTIMATED),
    DeviceRow("RTX 4070 Laptop", 8, 7.60, ADA, 15.6, 31.2, 256, ESTIMATED),
    DeviceRow("RTX 4080 Laptop", 12, 11.58, ADA, 24.7, 49.4, 432, ESTIMATED),
    DeviceRow("RTX 4090 Laptop", 16, 15.54, ADA, 33.0, 66.0, 576, ESTIMATED),
    DeviceRow("RTX 5060 Laptop", 8, 7.50, BLACKWELL, 16.2, 32.4, 384, ESTIMATED),
    DeviceRow("RTX 5070 Laptop", 8, 7.50, BLACKWELL, 18.4, 36.8, 384, ESTIMATED),
    DeviceRow("RTX 5070 Ti Laptop", 12, 11.46, BLACKWELL, 23.2, 46.4, 672, ESTIMATED),
    DeviceRow("RTX 5080 Laptop", 16, 15.42, BLACKWELL, 30.9, 61.8, 896, ESTIMATED),
    DeviceRow("RTX 5090 Laptop", 24, 23.38, BLACKWELL, 31.8, 63.6, 896, ESTIMATED),
)

WORKSTATION = (
    DeviceRow("Quadro P4000", 8, 7.92, PASCAL, 5.3, 5.3, 243, ESTIMATED),
    DeviceRow("Quadro P5000", 16, 15.89, PASCAL, 8.9, 8.9, 288, ESTIMATED),
    DeviceRow("Quadro P6000", 24, 23.86, PASCAL, 12.6, 12.6, 432, ESTIMATED),
    DeviceRow("Quadro GV100", 32, 31.70, VOLTA, 14.8, 118.5, 870, ESTIMATED),
    DeviceRow("Quadro RTX 4000", 8, 7.76, TURING, 7.1, 57.0, 416, ESTIMATED),
    DeviceRow("Quadro RTX 5000", 16, 15.56, TURING, 11.2, 89.2, 448, ESTIMATED),
    DeviceRow("Quadro RTX 6000", 24, 22.15, TURING, 16.3, 130.5, 672, ESTIMATED),
    DeviceRow("Quadro RTX 8000", 48, 44.49, TURING, 16.3, 130.5, 672, ESTIMATED),
    DeviceRow("RTX A2000", 6, 5.64, AMPERE, 8.0, 31.9, 288, ESTIMATED),
    DeviceRow("RTX A2000", 12, 11.60, AMPERE, 8.0, 31.9, 288, ESTIMATED),
    DeviceRow("RTX A4000", 16, 15.60, AMPERE, 19.2, 76.7, 448),
    DeviceRow("RTX A4500", 20, 19.55, AMPERE, 23.7, 94.6, 640, ESTIMATED),
    DeviceRow("RTX A5000", 24, 23.56, AMPERE, 27.8, 111.1, 768),
    DeviceRow("RTX A5500", 24, 23.55, AMPERE, 34.1, 136.4, 768, ESTIMATED),
    DeviceRow("RTX A6000", 48, 47.40, AMPERE, 38.7, 154.8, 768, ESTIMATED),
    DeviceRow("RTX 2000 Ada", 16, 15.50, ADA, 12.0, 48.0, 224, ESTIMATED),
    DeviceRow("RTX 4000 Ada", 20, 19.50, ADA, 26.7, 106.9, 360, ESTIMATED),
    DeviceRow("RTX 4500 Ada", 24, 23.50, ADA, 39.6, 158.5, 432, ESTIMATED),
    DeviceRow("RTX 5000 Ada", 32, 31.36, ADA, 65.3, 261.1, 576, ESTIMATED),
    DeviceRow("RTX 6000 Ada", 48, 47.37, ADA, 91.1, 364.2, 960, ESTIMATED),
    DeviceRow("RTX PRO 4000 Blackwell", 24, 23.38, BLACKWELL, 46.9, 187.6, 672, ESTIMATED),
    DeviceRow("RTX PRO 5000 Blackwell", 48, 46.90, BLACKWELL, 73.7, 294.8, 1344, ESTIMATED),
    DeviceRow("RTX PRO 6000 Blackwell", 96, 94.95, BLACKWELL, 125.0, 500.0, 1792, ESTIMATED),
)

DATA_CENTER = (
    DeviceRow("Tesla K80", 12, 11.17, (3, 7), 4.1, 4.1, 240, ESTIMATED),
    DeviceRow("Tesla M40", 12, 11.16, MAXWELL, 6.8, 6.8, 288, ESTIMATED),
    DeviceRow("Tesla M40", 24, 22.40, MAXWELL, 6.8, 6.8, 288, ESTIMATED),
    DeviceRow("Tesla M60", 8, 7.43, MAXWELL, 4.8, 4.8, 160, ESTIMATED),
    DeviceRow("Tesla P4", 8, 7.43, PASCAL, 5.5, 5.5, 192, ESTIMATED),
    DeviceRow("Tesla P40", 24, 22.38, PASCAL, 11.8, 11.8, 346, ESTIMATED),
    DeviceRow("Tesla P100", 16, 15.88, (6, 0), 9.3, 18.7, 732, ESTIMATED),
    DeviceRow("Tesla P100", 12, 11.90, (6, 0), 9.3, 18.7, 549, ESTIMATED),
    DeviceRow("Tesla V100", 16, 15.77, VOLTA, 15.7, 125.0, 900),
    DeviceRow("Tesla V100", 32, 31.73, VOLTA, 15.7, 125.0, 900),
    DeviceRow("Tesla T4", 16, 14.56, TURING, 8.1, 65.0, 320),
    DeviceRow("A2", 16, 14.54, AMPERE, 4.5, 18.0, 200, ESTIMATED),
    DeviceRow("A10", 24, 21.98, AMPERE, 31.2, 125.0, 600),
    DeviceRow("A10G", 24, 21.98, AMPERE, 31.2, 70.0, 600, ESTIMATED),
    DeviceRow("A16", 16, 14.53, AMPERE, 4.5, 18.0, 200, ESTIMATED),
    DeviceRow("A30", 24, 23.49, (8, 0), 10.3, 165.0, 933),
    DeviceRow("A40", 48, 44.34, AMPERE, 37.4, 149.7, 696, ESTIMATED),
    DeviceRow("A100", 40, 39.38, (8, 0), 19.5, 312.0, 1555),
    DeviceRow("A100", 80, 79.14, (8, 0), 19.5, 312.0, 1935),
    DeviceRow("L4", 24, 21.95, ADA, 30.3, 121.0, 300),
    DeviceRow("L20", 48, 44.40, ADA, 59.8, 119.5, 864),
    DeviceRow("L40", 48, 44.39, ADA, 90.5, 181.0, 864),
    DeviceRow("L40S", 48, 44.39, ADA, 91.6, 362.0, 864, ESTIMATED),
    DeviceRow("H20", 96, 95.00, HOPPER, 44.0, 148.0, 4000, ESTIMATED),
    DeviceRow("H100", 80, 79.10, HOPPER, 66.9, 989.0, 3350),
    DeviceRow("H100 PCIe", 80, 79.10, HOPPER, 51.2, 756.0, 2039, ESTIMATED),
    DeviceRow("H100 NVL", 94, 93.00, HOPPER, 60.0, 835.0, 3938),
    DeviceRow("H200", 141, 139.71, HOPPER, 66.9, 989.0, 4800, ESTIMATED),
    DeviceRow("GH200", 96, 94.40, HOPPER, 66.9, 989.0, 4000, ESTIMATED),
    DeviceRow("B200", 180, 178.30, (10, 0), 75.0, 2250.0, 8000, ESTIMATED),
)
# fmt: on

ROWS = (*GEFORCE, *LAPTOP, *WORKSTATION, *DATA_CENTER)
