module gpu-dra.example/memory-hook

go 1.26.0

tool gpu-dra.example/memory-hook/gpu-memory-hook
