"""Secrets as jobs print them, between « and », and what looks like one and is none. All are made up: X stands for 20 letters and digits, HEX for 32."""

X, HEX, B64 = "s3cr3tV4lue9876543210", "0123456789abcdef" * 2, "q8Zr4T1xw0Kc7Lm2Np5Vb9Ys3Df6Gh1Jk4Qe7Rt0="
PEM = "".join(f"«{'MIIEvQIBADANBgkqhkiG9w0BAQEFAASC' * 2}»\n" for _ in range(3))

SHAPES = f"""
export WANDB_API_KEY=«{X}»
export MY_TOKEN='«{X}»'
+ HF_TOKEN=«{X}»
export MLFLOW_TRACKING_PASSWORD=«ab/cd+{X}==»
NCCL_CONF_PASSPHRASE=«two words»
[default0]: DB_PASSWORD=«two words {X}»
+ export 'NCCL_CONF_PASSPHRASE=«two words {X}»'
['--password=«two words {X}»', '--lr=1']
SLURM_JWT=«{X}»
aws configure set aws_secret_access_key «{X}»
gh auth login --with-token <<< «{X}»
printf '%s' «{X}» | docker login --password-stdin
wandb: logged in with api key «{HEX}»
https://maps.example.org/x?key=«{X}»&y=1
SLURM_JWT=«{X * 40}» next
COMET_API_KEY=«{X}» NEPTUNE_API_TOKEN=«{X}»
setenv NGC_API_KEY «{X}»
 "GITHUB_TOKEN": "«{X}»",
{{"token": "«{X}»"}}
{{"access_token":"«{X}»","expires_in":3600}}
{{"password": "«pass/word with a \\" sign»"}}
{{"cmd": "export HF_TOKEN=\\"«{X}»\\"; run"}}
{{"auths": {{"nvcr.io": {{"auth": "«{B64}»"}}}}}}
{{"username":"me","key":"«{HEX}»"}}
{{"private_key_id": "«{HEX}»", "private_key": "«-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n»"}}
{{'HF_TOKEN': '«{X}»', 'lr': 1}}
Namespace(hf_token='«{X}»', lr=0.1)
Config(api_key=«{X}», lr=0.1)
os.environ["HF_TOKEN"] = "«{X}»"
token=b'«{X}»'
api_key: «{X}»
password: «hunter/2»
<password>«{X}»</password>
| HF_TOKEN | «{X}» |
  wandb_api_key ................................... «{X}»
wandb: Paste an API key from your profile and hit enter, API key: «{X}»
aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCY»
python train.py --wandb-api-key «{X}» --lr 1
python train.py --hf-token=«{X}»
['torchrun', '--api-key', '«{X}»', '--lr', '1']
openssl enc -aes-256-cbc -k «{X}» -in x
openssl rsa -in key.pem -passin pass:«{X}»
ssh-keygen -t ed25519 -N '«{X}»' -f id
zip -r -P «{X}» out.zip results
echo «{X}» | kinit me@EXAMPLE.ORG
expect "Password:"; send "«{X}»\\r"
set -gx HF_TOKEN «{X}»
setenv("WANDB_API_KEY","«{HEX}»")
pushenv('HF_TOKEN', '«{X}»')
os.environ.setdefault("DB_PASSWORD", "«two words»")
WANDB_API_KEY\t«{HEX}»
HF_TOKEN                  «{X}»
{{"name": "WANDB_API_KEY", "value": "«{HEX}»"}}
{{"name":"LR","value":"1"}},{{"name":"HF_TOKEN","value":"«hello»"}}
"env": "[{{\"Name\": \"HF_TOKEN\", \"Value\": \"«{X}»\"}}]"
kubectl create secret generic db --from-literal=pw=«{X}»
docker login nvcr.io --username '$oauthtoken' --password «{X}»
git clone https://«user:{X}»@example.org/x.git
git clone https://«user:pa/ss@wo:rd»@example.org/x.git
git clone https://«{X}»@example.org/x.git
redis://«:{X}»@cache:6379/0
postgresql://«me:{X}»@db:5432/runs
https_proxy=http://«me:{X}»@proxy:3128
pip install --extra-index-url https://«__token__:{X}»@pypi.example.org/simple torch
https://acc.blob.core.windows.net/c/f?sv=2022-11-02&sp=r&sig=«{X}%3D»
https://b.s3.amazonaws.com/k?X-Amz-Date=20260101T000000Z&X-Amz-Signature=«{HEX}»
https://storage.googleapis.com/b/k?X-Goog-Signature=«{HEX}»&x=1
http://node1:8888/lab?token=«{HEX}»
DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«{B64}»;EndpointSuffix=core.windows.net
Server=db;User ID=sa;Pwd=«{X}»;Database=runs
mount -t cifs //s/d /mnt -o username=me,password=«{X}»,uid=1
Authorization: Bearer «{X}»
> Authorization: Basic «{B64}»
curl -H "Authorization: token «{X}»" https://example.org
{{"headers": {{"Authorization": "«{X}»"}}}}
-H 'X-Api-Key: «{X}»'
PRIVATE-TOKEN: «{X}»
Set-Cookie: «session={X}; Path=/»
using Bearer «{X}»
curl -s -u me:«{X}» https://example.org
curl --user 'me:«{X}»' https://example.org
wget --http-password=«{X}» https://example.org
wandb login «{HEX}»
wandb login --relogin --host=https://wandb.example.org «{HEX}»
mysql -u root -p«{X}» runs
mysqldump -h db -p «{X}»
+ SSHPASS=«{X}» sshpass -e ssh node1
sshpass -p «{X}» ssh node1
sshpass -p'«{X}»' ssh node1
docker login -u me -p «{X}» nvcr.io
redis-cli -h cache -a «{X}» ping
ldapsearch -x -D cn=me -w «{X}»
smbclient //s/d -U me%«{X}»
ipmitool -H bmc -U me -P «{X}» power status
openssl enc -d -passin pass:«{X}» -in f
echo «{X}» | docker login -u me --password-stdin
machine api.wandb.ai login user password «{HEX}»
https://hooks.slack.com/«services/T00000000/B00000000/{X}»
https://discord.com/api/webhooks/«123456789012345678/{X}»
https://acme.webhook.office.com/«webhookb2/{HEX}@{HEX}/IncomingWebhook/{HEX}»
https://api.telegram.org/bot«123456789:{X}»/sendMessage
using token «hf_{X}»
«ghp_{X}{X}»
«github_pat_11AAAA_{X}»
«glpat-{X}»
«AKIAIOSFODNN7EXAMPLE»
AWS key «AKIAIOSFODNN7EXAMPLE, wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»
«xoxb-1234567890-{X}»
«nvapi-{X}»
«sk-proj-{X}»
«AIza{HEX}abc»
«npm_{HEX}»
«pypi-AgEIcHlwaS5vcmc{HEX}{HEX}»
«dapi{HEX}»
«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dozjgNryP4J3jVmN»
MUNGE credential «MUNGE:AwQDAACw{B64}»
xauth add node1:0 MIT-MAGIC-COOKIE-1 «{HEX}»
[default3]: WANDB_API_KEY=\x1b[32m«{X}»\x1b[0m set
\x1b[1mpassword\x1b[0m: «{X}»
\x1b[33m«ghp_{X[:9]}\x1b[0m\x1b[33m{X}{X}»\x1b[0m
""".strip().split("\n")

BLOCKS = (
    f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}«c2hvcnQ=»\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM}-----END OPENSSH PRIVATE KEY-----",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{PEM}-----END PGP PRIVATE KEY BLOCK-----",
    "-----BEGIN PRIVATE KEY-----\n"
    + PEM.replace("«", "[default0]: «")
    + "[default0]: «c2hvcnQ=»\n-----END PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n"
    + PEM.replace("\n", "\n[default3]: iteration 10/ 50 | elapsed time per iteration (s): 7.2 |\n", 1)
    + "the log ends here",
    f"env:\n- name: WANDB_API_KEY\n  value: «{HEX}»\n- name: LR\n  value: 1",
    f'[\r\n  {{\r\n    "name": "WANDB_API_KEY",\r\n    "value": "«{HEX}»"\r\n  }}\r\n]',
    f"machine api.wandb.ai\n  login user\n  password «{HEX}»\nmachine other",
)

HARMLESS = """
tokens per second: 36361.6 | tokens: 20000000 | consumed_tokens=1,024 | tokens/sec/gpu: 94.7
  tokenizer_type .................. GPT2BPETokenizer
  moe_token_dispatcher_type ....................... alltoall
  token_embedding_dim2 ... 12288
{"tokenizers": "0.23.3", "num_tokens": 5, "HF_TOKEN": "***", "token": null}
TOKENS=4096 TOKENIZERS_PARALLELISM=false use_auth_token=False
--tokens 20000000 --tokenizer-model gpt2 --api-key $API_KEY --eos-token 2
bos_token='<s>', eos_token='<|endoftext|>', pad_token="[PAD]", unk_token=<unk2> EOS_TOKEN=</s>
forward_pass: 12.3 ms | backward_pass=0.5s, per_pass = settings.size, if tokens_per_key == 0: x <<< 1234567
Estimated FLOPs per token: 1.392002e+08
https://example.org:8080/path https://example.org:8080/@scope/pkg git+https://github.com/NVIDIA/apex@0123456789abcdef
ssh://git@github.com/x.git tcp://10.0.0.1:29500 rsync me@node1:/scratch/x
  wandb_api_key ...................... None
api_key=os.environ["WANDB_API_KEY"], token=args.token, password=getpass.getpass()
SSH_AUTH_SOCK=/tmp/ssh-1/agent.5 GOOGLE_APPLICATION_CREDENTIALS=/p/home/me/.config/gcloud/key.json HF_TOKEN_PATH=/p/home/me/token
PWD=/p/home/me OLDPWD=/scratch PASS: test_x (12 s) {"pass": 3, "passed": 4}
:::MLLOG {"key": "opt_lamb_learning_rate_decay_poly_power", "value": 1.0}
size mismatch for key: layers.0.self_attention.linear_qkv.weight, key_value_channels 128, missing keys: []
authentication with the registry, secretary, design, pattern, login node: jwlogin01, the cookie
NCCL INFO Bootstrap : Using ib0:10.0.0.1<0> key 0x1a2b3c4d5e6f7a8b comm 0x55d4 commHash 0x9f86d081884c7d65
Using torch/utils/hooks/forward_hook_registry_v2.py, callbacks: hook/very_long_name_of_a_file_2.py
sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 commit 2deeb90f838e21cab39dc3ab9ec2872e8b6
ssh-keygen -t ed25519 -N "" -f key
gzip -9 -c a > b | zip -r all.zip folder
openssl req -key a.pem -out b
openssl s_client -connect host:443
send "hello there"
["HF_TOKEN", "WANDB_API_KEY", "PATH"] {"name": "HF_TOKEN", "value": "$(TOKEN)"} KeyError("HF_TOKEN", "is not set")
HF_TOKEN\tis not set, HF_TOKEN  string, MY_TOKEN 4f3c2a1b9 {"name": "HF_TOKEN", "valueFrom": "4f3c2a1b9"}
{"name": "tokens", "value": "4f3c2a1b9"} {"key": "num_tokens", "value": 20000000}
isend 4 rank 3, send 5 blocks
-----BEGIN CERTIFICATE-----
""".strip().split("\n")
