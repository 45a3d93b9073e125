// What the launcher says. Functions take the values that vary.
const texts = {
  installing: {
    en: "Installing dependencies (first start or changed lock file): npm fetches pnpm, then pnpm the packages...",
    zh: "正在安装依赖（首次启动，或锁文件有变化）：先由 npm 获取 pnpm，再由 pnpm 安装各软件包……",
  },
  installFailed: {
    en: "The dependencies could not be installed: see the lines above; check the network and start again.",
    zh: "依赖安装失败：请看上面的输出，检查网络后重新启动。",
  },
  installingPackage: {
    en: (name) => `Installing the system package ${name}...`,
    zh: (name) => `正在安装系统软件包 ${name}……`,
  },
  programMissing: {
    en: (program, debian) =>
      `${program} is missing and may not be installed from here: run "sudo apt-get install ${debian}"` +
      (program === "redis-server"
        ? " (macOS: brew install redis), or set REDIS_URL to a running Redis."
        : "."),
    zh: (program, debian) =>
      `缺少 ${program}，且当前用户无权安装：请运行 "sudo apt-get install ${debian}"` +
      (program === "redis-server"
        ? "（macOS：brew install redis），或用 REDIS_URL 指定已有的 Redis。"
        : "。"),
  },
  oldNode: {
    en: (version) => `Node ${version} is too old: install Node 20 or newer and start again.`,
    zh: (version) => `Node ${version} 版本过低：请安装 Node 20 或更新版本后重新启动。`,
  },
  windows: {
    en: "Larkline runs on Linux and macOS: on Windows, run `wsl --install` once, open the folder in WSL and start it there.",
    zh: "Larkline 运行在 Linux 和 macOS 上：在 Windows 上请先执行一次 `wsl --install`，再到 WSL 中打开此目录并启动。",
  },
  badPort: {
    en: (variable, value) => `${variable} must be a port from 1 to 65535, but is "${value}".`,
    zh: (variable, value) => `${variable} 必须是 1 到 65535 的端口，当前为 "${value}"。`,
  },
  samePort: {
    en: (one, other, port) =>
      `${one} and ${other} are both ${port}: give one of them another port.`,
    zh: (one, other, port) => `${one} 和 ${other} 都是 ${port}：请为其中一个换一个端口。`,
  },
  portTaken: {
    en: (port, service, variable) =>
      `Port ${port} (${service}) is taken: stop the program that uses it, or set ${variable} to a free port.`,
    zh: (port, service, variable) =>
      `端口 ${port}（${service}）已被占用：请停止占用它的程序，或用 ${variable} 指定空闲端口。`,
  },
  portRefused: {
    en: (port, variable, code) =>
      `Port ${port} cannot be opened (${code}): set ${variable} or HOST to something this machine may use.`,
    zh: (port, variable, code) => `无法打开端口 ${port}（${code}）：请调整 ${variable} 或 HOST。`,
  },
  halfPair: {
    en: (present, missing) =>
      `${present} is set, but ${missing} is not: set both for the real Feishu, none for the simulator.`,
    zh: (present, missing) =>
      `设置了 ${present}，但没有 ${missing}：连接真实飞书需要两者，使用模拟器则都不要设置。`,
  },
  keyMissing: {
    en: (models, key) =>
      `MODEL is ${models}, but ${key} is not set: set it, or unset MODEL to use the scripted model.`,
    zh: (models, key) =>
      `MODEL 为 ${models}，但没有设置 ${key}：请设置它，或取消 MODEL 以使用脚本模型。`,
  },
  keyRefused: {
    en: (key, host, status) =>
      `${key} was refused by ${host} (${status}): correct it, or unset it to use the scripted model.`,
    zh: (key, host, status) =>
      `${host} 拒绝了 ${key}（${status}）：请更正，或取消设置以使用脚本模型。`,
  },
  feishuRefused: {
    en: (host, code, reason) =>
      `${host} refused FEISHU_APP_ID and FEISHU_APP_SECRET (${code} ${reason}): copy both from the app's page "Credentials & Basic Info".`,
    zh: (host, code, reason) =>
      `${host} 拒绝了 FEISHU_APP_ID 和 FEISHU_APP_SECRET（${code} ${reason}）：请从应用的“凭证与基础信息”页面重新复制。`,
  },
  unreachable: {
    en: (host, key) => `Note: ${host} could not be reached to check ${key}; going on.`,
    zh: (host, key) => `提示：无法连接 ${host} 以检查 ${key}，继续启动。`,
  },
  urlWrong: {
    en: (name) => `${name} is not an address like https://example.com.`,
    zh: (name) => `${name} 不是形如 https://example.com 的地址。`,
  },
  signingKeyShort: {
    en: (length) =>
      `CALL_SIGNING_KEY must have at least ${length} characters; unset it to let the launcher make one.`,
    zh: (length) => `CALL_SIGNING_KEY 至少需要 ${length} 个字符；取消设置则由启动器自己生成。`,
  },
  redisUrlWrong: {
    en: "REDIS_URL must look like redis://[user:password@]host:port[/db]; unset it to let the launcher run its own Redis.",
    zh: "REDIS_URL 应形如 redis://[user:password@]host:port[/db]；取消设置则由启动器自己运行 Redis。",
  },
  redisSilent: {
    en: (node, code) =>
      `Redis at ${node} does not answer (${code}): start it, correct REDIS_URL, or unset REDIS_URL to let the launcher run its own.`,
    zh: (node, code) =>
      `${node} 上的 Redis 没有应答（${code}）：请启动它、更正 REDIS_URL，或取消 REDIS_URL 由启动器自己运行。`,
  },
  redisPassword: {
    en: (node) => `Redis at ${node} refuses the user or password in REDIS_URL: correct it.`,
    zh: (node) => `${node} 上的 Redis 拒绝了 REDIS_URL 中的用户名或密码：请更正。`,
  },
  redisFailed: {
    en: (log) =>
      `The private redis-server did not start: see ${log}, or set REDIS_URL to a running Redis.`,
    zh: (log) => `私有 redis-server 启动失败：请看 ${log}，或用 REDIS_URL 指定已有的 Redis。`,
  },
  alreadyRunning: {
    en: (pid) =>
      `Larkline already runs in this folder (process ${pid}): stop it first, or set LARKLINE_DATA_DIR and other ports.`,
    zh: (pid) =>
      `Larkline 已在此目录运行（进程 ${pid}）：请先停止它，或另设 LARKLINE_DATA_DIR 和端口。`,
  },
  notReady: {
    en: (service, seconds, logs) =>
      `${service} was not ready within ${seconds} s: see ${logs}/${service}.log.`,
    zh: (service, seconds, logs) =>
      `${service} 在 ${seconds} 秒内没有就绪：请看 ${logs}/${service}.log。`,
  },
  serviceRestarted: {
    en: (service, how) =>
      `${service} ended unexpectedly (${how}) and is started again; nothing is lost.`,
    zh: (service, how) => `${service} 意外退出（${how}），正在重新启动；不会丢失任何内容。`,
  },
  reloaded: {
    en: (files, services) => `${files} changed: ${services} started again with it.`,
    zh: (files, services) => `${files} 有变化：${services} 已用它重新启动。`,
  },
  notReloaded: {
    en: (files, service) =>
      `${files} changed, but ${service} cannot start with it (see above): nothing was replaced.`,
    zh: (files, service) =>
      `${files} 有变化，但 ${service} 无法用它启动（见上）：没有替换任何进程。`,
  },
  logUnwritable: {
    en: (service, reason) =>
      `the log of ${service} cannot be written (${reason}); its lines are dropped until it can.`,
    zh: (service, reason) => `无法写入 ${service} 的日志（${reason}），在恢复之前日志行会被丢弃。`,
  },
  logWritable: {
    en: (service, lost) =>
      `the log of ${service} can be written again; ${lost} line(s) are missing.`,
    zh: (service, lost) => `${service} 的日志已恢复写入，缺少 ${lost} 行。`,
  },
  serviceDied: {
    en: (service, how, logs) =>
      `${service} ended unexpectedly (${how}): see the lines above and ${logs}/${service}.log.`,
    zh: (service, how, logs) =>
      `${service} 意外退出（${how}）：请看上面的输出和 ${logs}/${service}.log。`,
  },
  dataNotPrivate: {
    en: (folder) =>
      `The data folder ${folder} is not private: run "chmod 700 ${folder}", or set LARKLINE_DATA_DIR to a new folder.`,
    zh: (folder) =>
      `数据目录 ${folder} 可被本机其他用户访问：请运行 "chmod 700 ${folder}"，或用 LARKLINE_DATA_DIR 指定一个新目录。`,
  },
  bundling: {
    en: "Bundling the apps (first start or changed sources, a few seconds)...",
    zh: "正在打包各应用（首次启动或源码有变化，需要几秒）……",
  },
  notBundled: {
    en: (reason) =>
      `The apps could not be bundled (${reason}): they run from their sources, which takes more time and memory.`,
    zh: (reason) => `应用打包失败（${reason}）：将直接从源码运行，启动更慢，占用内存更多。`,
  },
  starting: { en: "Starting...", zh: "正在启动……" },
  stillStarting: {
    en: (ready, all, missing, seconds) =>
      `Ready after ${seconds} s: ${ready} of ${all}; still starting: ${missing}`,
    zh: (ready, all, missing, seconds) =>
      `${seconds} 秒后已有 ${ready}/${all} 个服务就绪；仍在启动：${missing}`,
  },
  stopping: { en: "Stopping...", zh: "正在停止……" },
  stopped: { en: "Stopped.", zh: "已停止。" },
  running: { en: "Larkline is running.", zh: "Larkline 已启动。" },
  howToStop: { en: "Ctrl-C stops everything.", zh: "按 Ctrl-C 停止全部进程。" },
  labelPlayground: { en: "Playground", zh: "演练场　" },
  labelApi: { en: "HTTP API  ", zh: "HTTP API" },
  labelConsole: { en: "Console   ", zh: "控制台　" },
  labelFeishu: { en: "Feishu    ", zh: "飞书　　" },
  labelModel: { en: "Model     ", zh: "模型　　" },
  labelRedis: { en: "Redis     ", zh: "Redis   " },
  labelTools: { en: "Tools     ", zh: "工具　　" },
  labelLogs: { en: "Logs      ", zh: "日志　　" },
  feishuReal: {
    en: (appId, domain) => `${appId} by long connection (${domain})`,
    zh: (appId, domain) => `${appId}，长连接（${domain}）`,
  },
  feishuSimulator: {
    en: "simulator of the playground (set FEISHU_APP_ID and FEISHU_APP_SECRET for the real one)",
    zh: "演练场的模拟器（设置 FEISHU_APP_ID 和 FEISHU_APP_SECRET 可连接真实飞书）",
  },
  modelScripted: {
    en: "scripted model of the playground (set ANTHROPIC_API_KEY or OPENAI_API_KEY for a real one)",
    zh: "演练场的脚本模型（设置 ANTHROPIC_API_KEY 或 OPENAI_API_KEY 可使用真实模型）",
  },
  givenRedis: { en: "the server of REDIS_URL", zh: "REDIS_URL 指定的服务" },
  privateRedis: {
    en: (port, directory) => `private server on port ${port}, data in ${directory}`,
    zh: (port, directory) => `私有服务，端口 ${port}，数据在 ${directory}`,
  },
  tools: {
    en: (add) => `(one tool-runner; for another one: ${add} <name> <file>)`,
    zh: (add) => `（一个 tool-runner；再加一个：${add} <名称> <文件>）`,
  },
};

const language = /^zh/i.test(
  process.env.LC_ALL || process.env.LC_MESSAGES || process.env.LANG || "",
)
  ? "zh"
  : "en";

/** A text in the language of the terminal, English unless that is Chinese. */
export function text(name, ...values) {
  const entry = texts[name][language];
  return typeof entry === "function" ? entry(...values) : entry;
}
