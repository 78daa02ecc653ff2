"""MLX-LM: the bytes that the library's own cache objects hold on a Mac (`mlx_lm.generate`, `mlx_lm.server`, LM Studio's MLX runtime).

bytes = Σ over layers   rows x (K width + V width) x bytes of the model's type x sequences

engine.py     the plan, and what the settings refuse
families.py   one entry a model module of mlx-lm: what it makes of the layers
caches.py     states → cache objects, by the family's rules
rows.py       rows that each cache class holds after a schedule of calls
"""
