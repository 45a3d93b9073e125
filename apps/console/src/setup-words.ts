import type { ReplyLanguage } from "@larkline/protocol";

/** Words of the pages where operators set things up: models, runners, the app at the platform. */
export const setupWords = {
  models: { zh: "模型", en: "Models" },
  modelsAre: {
    zh: "larkline.config.ts 和 worker 的环境变量里的模型服务，以及管理员在这里添加的。名称相同时配置文件优先。添加的模型可以在智能体的页面上选用，几秒内生效，不用重启；智能体的版本设置了模型时，配置文件里的 model 不再起作用。",
    en: "Servers of larkline.config.ts and of the workers' environment, and those that operators add here. Where both have a name, the file wins. An agent is given a model of an added server on its own page, and uses it within seconds, without a restart; the model of an agent's version covers the one in the file.",
  },
  modelsAreOff: {
    zh: "配置文件没有允许在这里添加模型服务。要允许，请在 larkline.config.ts 中写入：",
    en: "The file does not let operators add servers of models here. To allow it, larkline.config.ts needs:",
  },
  noGrantKey: {
    zh: "worker 没有设置 GRANT_KEY，所以无法保存密钥：只能添加不需要密钥的服务。",
    en: "The workers have no GRANT_KEY, so keys cannot be kept: only servers without one can be added.",
  },
  from: { zh: "来源", en: "From" },
  fromFile: { zh: "larkline.config.ts", en: "larkline.config.ts" },
  fromEnvironment: { zh: "worker 的环境变量", en: "the workers' environment" },
  addedBy: { zh: "在此添加：", en: "added here by " },
  modelInterface: { zh: "接口", en: "Interface" },
  ofModule: { zh: "模块", en: "a module" },
  address: { zh: "地址", en: "Address" },
  vendorsOwn: { zh: "厂商自己的地址", en: "the vendor's own" },
  apiKey: { zh: "密钥", en: "Key" },
  keyInVariable: { zh: "环境变量 ", en: "variable " },
  keySealed: { zh: "已加密，只有 worker 能打开", en: "sealed: only workers open it" },
  keyIsOld: {
    zh: "用旧的 GRANT_KEY 加密：删除旧密钥之前请重新填写",
    en: "sealed for an older GRANT_KEY: give it again before you remove that one",
  },
  keyNone: { zh: "没有", en: "none" },
  usedBy: { zh: "使用它的智能体", en: "Agents that use it" },
  modelOfWorkers: {
    zh: "MODEL，没有自己模型的智能体使用",
    en: "MODEL, for agents without one of their own",
  },
  pricesUnknown: {
    zh: "价格未知，不计入费用预算",
    en: "prices unknown: budgets in money do not count it",
  },
  serverIsCovered: {
    zh: "配置文件里有同名的服务，以配置文件为准：这里添加的不生效。",
    en: "The file has a server of this name, which wins: this one is not used.",
  },
  serverIsRefused: {
    zh: "不使用：数据已损坏，或 worker 的 GRANT_KEY 打不开密钥。请重新保存。",
    en: "Not used: it is damaged, or no GRANT_KEY of the workers opens its key. Save it again.",
  },
  serverIsNotAllowed: {
    zh: "配置文件现在不允许这个地址：不使用。",
    en: "The file does not allow this address any more: it is not used.",
  },
  testIt: { zh: "测试", en: "Test" },
  changeIt: { zh: "修改", en: "Change" },
  removeServer: { zh: "删除", en: "Remove" },
  removeServerTexts: {
    zh: "服务和它的密钥将被删除，无法恢复。",
    en: "The server is removed with its key, which cannot be had back.",
  },
  addServer: { zh: "添加或修改模型服务", en: "Add a server of models, or change one" },
  serverName: { zh: "名称", en: "Name" },
  serverNameHint: {
    zh: "模型名中斜线前的部分，例如 deepseek：小写字母、数字和连字符。",
    en: "What stands before the slash of a model's name, such as deepseek: small letters, digits, hyphens.",
  },
  interfaceOpenai: {
    zh: "OpenAI 兼容（chat completions）",
    en: "OpenAI-compatible (chat completions)",
  },
  interfaceResponses: { zh: "OpenAI Responses", en: "OpenAI Responses" },
  interfaceAnthropic: { zh: "Anthropic", en: "Anthropic" },
  addressHint: {
    zh: "例如 https://api.deepseek.com/v1；留空表示厂商自己的地址。内网或 http 地址须由配置文件列出（console.models.hosts）。",
    en: "Such as https://api.deepseek.com/v1; empty: the vendor's own. A private or http address must be listed by the file (console.models.hosts).",
  },
  modelIds: { zh: "模型", en: "Models" },
  modelIdsHint: { zh: "服务中的模型 ID，每行一个。", en: "Their ids at the server, one a line." },
  contextWindow: { zh: "上下文长度（tokens）", en: "Context window (tokens)" },
  contextWindowHint: {
    zh: "仅用于未知的模型；留空为 32000。",
    en: "Of models that are not known; empty: 32,000.",
  },
  apiKeyHint: {
    zh: "只写：在控制台里加密，只有 worker 能打开，不会再显示。地址不变时留空表示保留原来的密钥。",
    en: "Write-only: sealed for workers here, and never shown again. Empty: the key it has stays, where the address is the same.",
  },
  save: { zh: "保存", en: "Save" },
  serverSaved: {
    zh: "已保存，几秒内生效。请测试它的模型。",
    en: "It is saved, and counts within seconds. Test its models.",
  },
  serverRemoved: { zh: "已删除。", en: "It is removed." },
  noSuchServer: { zh: "没有这个服务。", en: "There is no such server." },
  serverNotPossible: {
    zh: "worker 没有接受：配置文件不允许，或打不开密钥。",
    en: "The worker has not taken it: the file does not allow it, or the key does not open there.",
  },
  serverInUse: {
    zh: "没有修改：有智能体的版本在使用它的模型。请先在它们的页面上换用其他模型：",
    en: "Nothing was changed, since versions of agents use its models. Give these other ones first: ",
  },
  tooManyServers: { zh: "添加的服务太多。", en: "Too many servers are added." },
  nameInFile: {
    zh: "配置文件或环境变量里已有这个名称。",
    en: "The file or the environment has this name.",
  },
  wrongName: { zh: "名称不符合要求。", en: "That is no such name." },
  wrongAddress: {
    zh: "请填写 https 地址，不带用户名、查询和片段。",
    en: "Give an https address without user, query and fragment.",
  },
  privateAddress: {
    zh: "内网地址须由配置文件列出（console.models.hosts）。",
    en: "A private address must be listed by the file (console.models.hosts).",
  },
  wrongModels: {
    zh: "请填写 1 到 50 个模型 ID，每行一个，不含空格和逗号。",
    en: "Give 1 to 50 ids, one a line, without blanks and commas.",
  },
  wrongKey: { zh: "密钥太长，或包含空格。", en: "The key is too long, or has blanks in it." },
  testAnswers: { zh: "有回答：", en: "answers: " },
  testFailed: { zh: "没有回答：", en: "does not answer: " },
  testSeconds: { zh: "用时（秒）", en: "seconds" },
  testAuth: {
    zh: "密钥被拒绝，或没有权限。",
    en: "The key is refused, or has no right to it.",
  },
  testBusy: { zh: "服务繁忙或限流，请稍后再试。", en: "The server is busy: try again later." },
  testRefused: {
    zh: "服务拒绝了请求：检查模型 ID、地址和接口。",
    en: "The server refuses the request: look at the model's id, the address and the interface.",
  },
  testTimeout: { zh: "12 秒内没有回答。", en: "There was no answer within 12 s." },
  testUnknown: { zh: "worker 不认识这个模型。", en: "The worker does not know this model." },
  testBroken: {
    zh: "连接失败：检查地址和网络；内网地址须由配置文件列出（console.models.hosts）。",
    en: "The connection fails: look at the address and the network; a private address must be listed by the file (console.models.hosts).",
  },
  furtherRunner: { zh: "再加一个 Runner", en: "A further runner" },
  fileOfTools: { zh: "工具文件", en: "File of its tools" },
  showLines: { zh: "显示命令", en: "Show the lines" },
  wrongRunner: {
    zh: "名称为 1 到 64 个字母、数字、“_”或“-”；文件名不含空格和引号。",
    en: "A name is 1 to 64 letters, digits, '_' or '-'; a file has no blanks and quotes.",
  },
  lineBesideStart: {
    zh: "在 npm start 所在的目录运行；它会输出启动这个 Runner 的命令，其中含有密钥：",
    en: "In the folder of npm start: prints the line that starts the runner, with its keys:",
  },
  lineWithoutClone: { zh: "没有克隆仓库时：", en: "Without a clone:" },
  variablesElsewhere: {
    zh: "在其他机器上（Compose、Kubernetes），这个 Runner 需要这些环境变量：",
    en: "On another machine (Compose, Kubernetes), the runner needs these variables:",
  },
  keysAreElsewhere: {
    zh: "控制台没有签名密钥和 Redis 密码，所以这里不显示。启动后几秒内，这个 Runner 会出现在本页。",
    en: "The console has neither the signing key nor the password of Redis, so it does not show them. The runner is on this page seconds after its start.",
  },
  mcpServers: { zh: "MCP 服务器", en: "MCP servers" },
  noMcpServers: { zh: "配置文件没有 MCP 服务器。", en: "The file has no MCP servers." },
  noToolsOfServer: {
    zh: "没有工具：原因见它的 Runner 的日志",
    en: "no tools: the log of its runner says why",
  },
  addMcpServer: { zh: "添加 MCP 服务器", en: "Add an MCP server" },
  mcpLinesAre: {
    zh: "写入 larkline.config.ts 的 defineConfig，密钥放在 Runner 的环境变量里（不要写在文件中）。npm start 会自动重新加载；其他部署重启 Runner。",
    en: "Into defineConfig of larkline.config.ts; secrets go into variables of the runner, not into the file. npm start takes it up by itself; elsewhere restart the runner.",
  },
  program: { zh: "程序", en: "a program" },
  checkApp: { zh: "检查应用", en: "Check the app" },
  appNotChecked: {
    zh: "没有检查：没有 worker 使用这个应用。",
    en: "It was not checked: no worker has this app.",
  },
  waitsForMessage: {
    zh: "正在等待第一条消息：在飞书里给机器人发一条消息。",
    en: "Waiting for the first message: write to the bot in Feishu.",
  },
  lookAgain: { zh: "刷新", en: "Look again" },
  messageArrived: {
    zh: "收到了飞书的事件，最近一次：",
    en: "Events of Feishu arrive, the last one",
  },
  isThere: { zh: "有", en: "there" },
  isMissing: { zh: "缺少", en: "missing" },
  isRequired: { zh: "必需", en: "required" },
  isRecommended: { zh: "建议", en: "recommended" },
  isOptional: { zh: "可选", en: "optional" },
  appRefused: { zh: "飞书没有接受这个应用：", en: "Feishu does not accept the app:" },
  toCredentials: {
    zh: "在开发者后台核对凭证",
    en: "Compare its credentials in the developer console",
  },
  botIs: { zh: "机器人", en: "Bot" },
  versionIsPublished: { zh: "应用版本已发布", en: "A version of the app is published" },
  longConnection: { zh: "可以建立长连接", en: "A long connection can be opened" },
  grantMissing: { zh: "开通缺少的权限", en: "Grant the permissions that are missing" },
  appScopes: { zh: "权限", en: "Permissions" },
  appEvents: { zh: "事件订阅", en: "Events" },
  appCallbacks: { zh: "回调订阅", en: "Callbacks" },
  toEvents: {
    zh: "在开发者后台打开事件与回调",
    en: "Events and callbacks in the developer console",
  },
  cannotBeRead: {
    zh: "无法读取（需要权限 application:application:self_manage）",
    en: "cannot be read (it needs application:application:self_manage)",
  },
  connectApp: { zh: "连接飞书应用", en: "Connect an app of Feishu" },
  stepSetup: {
    zh: "在 npm start 所在的目录运行；用飞书扫码即可创建应用，凭证写入 .env：",
    en: "In the folder of npm start: shows a code to scan with Feishu, which creates the app, and writes its credentials to .env:",
  },
  stepManual: { zh: "已有应用时：", en: "For an app that exists:" },
  stepRestart: {
    zh: "重新运行 npm start；其他部署更新 ingress 和 worker 的环境变量并重启。",
    en: "Start npm start anew; elsewhere set the variables of ingress and workers, and restart them.",
  },
  stepCheck: {
    zh: "在本页点击“检查应用”：缺少的权限、事件和回调会列出，并附链接。",
    en: '"Check the app" on this page names permissions, events and callbacks that are missing, with links.',
  },
  stepWrite: {
    zh: "在飞书里给机器人发一条消息：本页会显示它已到达。",
    en: "Write to the bot in Feishu: this page says that it arrived.",
  },
  secretIsElsewhere: {
    zh: "应用密钥在 ingress 和 worker 的环境变量中；ingress 没有能打开加密数据的密钥，所以这里没有填写它的表单。",
    en: "The secret of an app is in the environment of ingress and workers. Ingress has no key that opens what is sealed, so there is no form for it here.",
  },
  testRuns: { zh: "正在测试的太多，请稍后再试。", en: "Too many tests run: try again later." },
} satisfies Record<string, Record<ReplyLanguage, string>>;
