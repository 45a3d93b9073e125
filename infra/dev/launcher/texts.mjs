// What the launcher says. Functions take the values that vary.
const texts = {
  installing: {
    en: "Installing dependencies (first start or changed lock file)...",
    zh: "正在安装依赖（首次启动，或锁文件有变化）……",
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
      (program === "redis-server" ? " (macOS: brew install redis), or set REDIS_URL to a running Redis." : "."),
    zh: (program, debian) =>
      `缺少 ${program}，且当前用户无权安装：请运行 "sudo apt-get install ${debian}"` +
      (program === "redis-server" ? "（macOS：brew install redis），或用 REDIS_URL 指定已有的 Redis。" : "。"),
  },
  oldNode: {
    en: (version) => `Node ${version} is too old: install Node 20 or newer and start again.`,
    zh: (version) => `Node ${version} 版本过低：请安装 Node 20 或更新版本后重新启动。`,
  },
};

const language = /^zh/i.test(process.env.LC_ALL || process.env.LC_MESSAGES || process.env.LANG || "") ? "zh" : "en";

/** A text in the language of the terminal, English unless that is Chinese. */
export function text(name, ...values) {
  const entry = texts[name][language];
  return typeof entry === "function" ? entry(...values) : entry;
}
