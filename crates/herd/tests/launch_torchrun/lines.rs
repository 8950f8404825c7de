//! torchrun's command lines as public training repositories tell their users to write them, in August
//! 2026, with the file that does. Shortened: numbers of workers above 4 are 4, what stands for a
//! number or an address has one, and arguments of the script are its first ones.

/// One command line.
pub(crate) struct Line {
    /// Repository on GitHub, and file.
    pub(crate) source: &'static str,
    /// Variables it sets.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// What follows `torchrun`. `{port}` is a free port, the same on all nodes, `{node}` the node's
    /// number.
    pub(crate) text: &'static str,
    /// Nodes, each of which runs the line.
    pub(crate) nodes: usize,
}

const fn line(source: &'static str, text: &'static str) -> Line {
    Line {
        source,
        env: &[],
        text,
        nodes: 1,
    }
}

#[rustfmt::skip]
pub(crate) const LINES: &[Line] = &[
    line("karpathy/nanoGPT README.md", "--standalone --nproc_per_node=4 train.py config/train_gpt2.py"),
    Line { env: &[("OMP_NUM_THREADS", "1")], ..line("karpathy/nanochat README.md", "--standalone --nproc_per_node=4 -m scripts.base_train -- --depth=12 --run=d12 --sample-every=-1") },
    Line { env: &[("NANOCHAT_DTYPE", "bfloat16")], ..line("karpathy/nanochat README.md", "--nproc_per_node=4 -m scripts.base_train") },
    line("facebookresearch/DiT README.md", "--nnodes=1 --nproc_per_node=2 train.py --model DiT-XL/2 --data-path /path/to/imagenet/train"),
    line("tatsu-lab/stanford_alpaca README.md", "--nproc_per_node=4 --master_port={port} train.py --bf16 True --num_train_epochs 3"),
    line("lm-sys/FastChat README.md", "--nproc_per_node=4 --master_port={port} fastchat/train/train_mem.py --model_name_or_path meta-llama/Llama-2-7b-hf"),
    line("mlfoundations/open_clip README.md", "--nproc_per_node 4 -m open_clip_train.main --train-data /data/cc12m/cc12m-train-{0000..2175}.tar --batch-size 320"),
    Line { env: &[("TORCH_CUDNN_V8_API_ENABLED", "1")], ..line("mlfoundations/open_clip scripts/h14_224_32_finetune.sh", "--nproc_per_node 4 -m open_clip_train.main --save-frequency 1") },
    line("meta-llama/llama README.md", "--nproc_per_node 1 example_chat_completion.py --ckpt_dir llama-2-7b-chat/ --max_seq_len 512"),
    line("meta-llama/codellama README.md", "--nproc_per_node 1 example_infilling.py --ckpt_dir CodeLlama-7b/"),
    line("hpcaitech/Open-Sora README.md", "--nproc_per_node 1 --standalone scripts/diffusion/inference.py configs/diffusion/inference/256px.py --prompt rain"),
    Line { env: &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")], ..line("THUDM/CogVideo sat/finetune_multi_gpus.sh", "--standalone --nproc_per_node=4 train_video.py --base configs/sft.yaml --seed 17") },
    line("QwenLM/Qwen recipes/finetune/deepspeed/readme.md", "--nproc_per_node 2 --nnodes 1 --node_rank 0 --master_addr localhost --master_port {port} finetune.py --bf16 True"),
    Line { env: &[("PYTORCH_ALLOC_CONF", "expandable_segments:True")], ..line("pytorch/torchtitan run_train.sh", "--nproc_per_node=4 --rdzv_backend c10d --rdzv_endpoint=localhost:0 --local-ranks-filter 0 --role rank --tee 3 -m torchtitan.train --module llama3") },
    line("pytorch/torchtitan torchtitan/experiments/graph_trainer/run_train_precompile.sh", "--nproc_per_node=4 --rdzv_backend c10d --rdzv_endpoint=localhost:0 --virtual-local-rank --local-ranks-filter 0 --role rank --tee 3 -m torchtitan.train"),
    line("pytorch/torchtitan torchtitan/components/quantization/nvfp4.md", "--standalone --nproc_per_node 4 train.py"),
    line("InternLM/xtuner docs/en/get_started/installation.md", "xtuner/v1/train/cli/sft.py --config examples/v1/sft_intern_s1_tiny_config.py"),
    line("InternLM/xtuner docs/en/get_started/sft.md", "--nproc-per-node 4 xtuner/v1/train/cli/sft.py --chat_template qwen3 --total-step 100"),
    line("FlagOpen/FlagEmbedding examples/README.md", "--nproc_per_node 2 -m FlagEmbedding.finetune.embedder.encoder_only.base --cache_dir ./cache/model"),
    line("FunAudioLLM/CosyVoice examples/libritts/cosyvoice/run.sh", "--nnodes=1 --nproc_per_node=2 --rdzv_id=1986 --rdzv_backend=c10d --rdzv_endpoint=localhost:{port} cosyvoice/bin/train.py --train_engine torch_ddp --pin_memory"),
    line("pytorch/examples distributed/FSDP/README.md", "--nnodes 1 --nproc_per_node 4 T5_training.py"),
    line("huggingface/pytorch-image-models distributed_train.sh", "--nproc_per_node=3 train.py --model resnet50"),
    line("NVIDIA/Megatron-LM docs/get-started/quickstart.md", "--nproc_per_node=2 examples/run_simple_mcore_train_loop.py"),
    line("OpenGVLab/InternVL internvl_chat/eval/mmmu/README.md", "--nproc_per_node=4 eval/mmmu/evaluate_mmmu.py --dynamic"),
    Line { nodes: 2, ..line("karpathy/nanoGPT README.md", "--nproc_per_node=4 --nnodes=2 --node_rank={node} --master_addr=127.0.0.1 --master_port={port} train.py") },
    Line { nodes: 4, ..line("pytorch/examples distributed/ddp-tutorial-series/slurm/sbatch_run.sh", "--nnodes 4 --nproc_per_node 1 --rdzv_id 4711 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:{port} multinode_torchrun.py 50 10") },
    Line { nodes: 2, ..line("deepseek-ai/DeepSeek-V3 README.md", "--nnodes 2 --nproc-per-node 4 --node-rank {node} --master-addr 127.0.0.1 --master-port {port} generate.py --interactive --temperature 0.7") },
    Line { nodes: 2, ..line("pytorch/torchtitan benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md", "--nnodes 2 --nproc_per_node 4 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:{port} torchtitan/train.py --metrics.enable_wandb") },
];
