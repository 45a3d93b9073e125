import type { Bilingual } from "./language.ts";

/** The options, for somebody who wrote a wrong one. */
export const usage: Bilingual = {
  en: `npm run setup -- [--manual] [--yes] [--overwrite] [options]
  Creates a Feishu app by a link that you confirm, and writes its credentials to .env.
  --manual       for an app that exists: prints what to tick in the developer console, asks for its credentials
  --yes          asks nothing: values come from the options and from the environment
  --overwrite    with --yes: values that .env has already are replaced
  --app-id, --domain feishu|lark|<url>, --transport websocket|webhook|both, --model <provider>/<id>
                 the answers to questions; secrets only from the environment: FEISHU_APP_SECRET,
                 FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN, ANTHROPIC_API_KEY, OPENAI_API_KEY

npm run doctor -- [--json] [--webhook-url <url>]
  Checks the configuration and everything it names. Exit code 1 when there is a problem.
  --json         for machines
  --webhook-url  public address of the ingress, for apps that get their events by webhook

npm run -s runner-key -- <name>
  Prints the RUNNER_KEY of the runner of that name, made from CALL_SIGNING_KEY or from the key of npm start.

npm run runner -- remove <name>
  Forgets a runner that has stopped for good. Without this its tools are offered for 10 minutes, and calls wait for it.

npm run -s audit -- [--from <time>] [--to <time>]
  Prints what was done for whom, one JSON object a line; times as in 2026-03-01T08:00:00Z.

npm run -s people -- export <id> [--app <app id>] [--chat <chat id>] > file.ndjson
  Prints what is stored of a person, one JSON object a line. --app: default FEISHU_APP_ID.
npm run people -- delete <id> [--app <app id>] [--chat <chat id>] [--yes]
  Deletes it; without --yes it only counts. Workers have to run. What was broken off is finished by another run.
  --chat         a direct chat of the person that no index knows of, or with --app api a session of the HTTP API

All: --file <path> (default .env), --lang zh|en (default: the terminal's).`,
  zh: `npm run setup -- [--manual] [--yes] [--overwrite] [选项]
  通过你确认的链接创建飞书应用，并把凭证写入 .env。
  --manual       用于已有的应用：列出开发者后台要勾选的内容，并询问凭证
  --yes          不提问：取值来自选项和环境变量
  --overwrite    与 --yes 同用：替换 .env 中已有的值
  --app-id、--domain feishu|lark|<地址>、--transport websocket|webhook|both、--model <供应商>/<id>
                 问题的答案；机密只从环境变量读取：FEISHU_APP_SECRET、
                 FEISHU_ENCRYPT_KEY、FEISHU_VERIFICATION_TOKEN、ANTHROPIC_API_KEY、OPENAI_API_KEY

npm run doctor -- [--json] [--webhook-url <地址>]
  检查配置及其涉及的一切。有问题时退出码为 1。
  --json         供程序读取
  --webhook-url  ingress 的公网地址，用于以 webhook 接收事件的应用

npm run -s runner-key -- <名称>
  输出该名称的 tool-runner 的 RUNNER_KEY，由 CALL_SIGNING_KEY 或 npm start 的密钥派生。

npm run runner -- remove <名称>
  忘掉已永久停止的 tool-runner。否则它的工具还会提供 10 分钟，调用会等它回来。

npm run -s audit -- [--from <时间>] [--to <时间>]
  输出审计记录，每行一个 JSON 对象；时间写作 2026-03-01T08:00:00Z。

npm run -s people -- export <id> [--app <应用 ID>] [--chat <会话 ID>] > file.ndjson
  输出所存储的某人的数据，每行一个 JSON 对象。--app：默认 FEISHU_APP_ID。
npm run people -- delete <id> [--app <应用 ID>] [--chat <会话 ID>] [--yes]
  删除这些数据；不加 --yes 只统计数量。需有运行中的 worker。中断后再次运行即可完成。
  --chat         索引中没有的、此人的单聊会话；与 --app api 同用时为 HTTP API 的会话

通用：--file <路径>（默认 .env）、--lang zh|en（默认取终端的语言）。`,
};
