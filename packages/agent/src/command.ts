import type { ReplyLanguage } from "@larkline/protocol";

/** The orders that the system itself understands. */
export const commandNames = [
  "help",
  "new",
  "stop",
  "status",
  "model",
  "compact",
  "whoami",
  "usage",
  "permissions",
] as const;
export type CommandName = (typeof commandNames)[number];

/** Commands of an agent's configuration, by name without slash: they become a prompt for the model. */
export type CustomCommands = Readonly<Record<string, { description: string; prompt: string }>>;

/** A message that is a command. */
export type ParsedCommand =
  | { kind: "builtin"; name: CommandName; argument: string }
  /** `prompt` is what the model gets in place of the message. */
  | { kind: "custom"; name: string; argument: string; prompt: string };

interface CommandRow {
  name: CommandName;
  zhName: string;
  zh: string;
  en: string;
}

/** In the order of `/help`. */
const table: readonly CommandRow[] = [
  { name: "help", zhName: "帮助", zh: "显示可用的命令", en: "show what you can type" },
  {
    name: "new",
    zhName: "新对话",
    zh: "开始新的对话，不再参考之前的内容",
    en: "begin a new conversation and leave the old one behind",
  },
  { name: "stop", zhName: "停止", zh: "停止正在进行的任务", en: "stop what is running" },
  { name: "status", zhName: "状态", zh: "查看这个对话的状态", en: "show what this conversation is doing" },
  {
    name: "model",
    zhName: "模型",
    zh: "查看或选择模型，例如 /模型 名称",
    en: "show or choose the model, for example /model name",
  },
  {
    name: "compact",
    zhName: "压缩",
    zh: "把较早的内容压缩成摘要",
    en: "replace the older part of the conversation by a summary",
  },
  { name: "whoami", zhName: "我是谁", zh: "显示机器人看到的你的身份", en: "show who you are to this bot" },
  { name: "usage", zhName: "用量", zh: "查看额度和已用的部分", en: "show your budgets and what is left of them" },
  {
    name: "permissions",
    zhName: "权限",
    zh: "查看或撤销不再询问的操作，例如 /权限 撤销 1",
    en: "show what runs without asking, or take it back, for example /permissions revoke 1",
  },
];

const byName: ReadonlyMap<string, CommandName> = new Map(
  table.flatMap(({ name, zhName }): [string, CommandName][] => [
    [name, name],
    [zhName, name],
  ]),
);

/** A slash, also a full-width one, directly followed by a name; then nothing, or a blank and an argument. */
const form = /^[/\uFF0F]([\p{L}\p{N}_-]{1,64})(?:\s+([^]*))?$/u;

function customNamed(name: string, custom: CustomCommands): [string, { prompt: string }] | undefined {
  return Object.entries(custom).find(([known]) => known.toLowerCase() === name);
}

/**
 * The command that a text is, by its English or Chinese name in any case. Undefined for everything
 * else: unknown words after a slash, such as paths, are for the model. Names of the system's own
 * commands cannot be taken by the configuration.
 */
export function parseCommand(text: string, custom: CustomCommands = {}): ParsedCommand | undefined {
  const found = form.exec(text.trim());
  if (found === null) return undefined;
  const [, word = "", rest = ""] = found;
  const wanted = word.toLowerCase();
  const argument = rest.trim();
  const builtin = byName.get(wanted);
  if (builtin !== undefined) return { kind: "builtin", name: builtin, argument };
  const own = customNamed(wanted, custom);
  if (own === undefined) return undefined;
  const [name, { prompt }] = own;
  return { kind: "custom", name, argument, prompt: argument === "" ? prompt : `${prompt}\n\n${argument}` };
}

/** A command as people read it. */
export interface DescribedCommand {
  /** With the slash. */
  name: string;
  description: string;
}

/** The commands that a configuration adds. */
function ownCommands(custom: CustomCommands): DescribedCommand[] {
  return Object.entries(custom)
    .filter(([name]) => !byName.has(name.toLowerCase()))
    .map(([name, { description }]) => ({ name: `/${name}`, description }));
}

/** All commands, in the order of `/help`. */
export function describedCommands(language: ReplyLanguage, custom: CustomCommands = {}): DescribedCommand[] {
  const builtin = table.map(({ name, zhName, zh, en }) =>
    language === "zh" ? { name: `/${zhName}`, description: zh } : { name: `/${name}`, description: en },
  );
  return [...builtin, ...ownCommands(custom)];
}

/** What `/help` answers. */
export function helpText(language: ReplyLanguage, custom: CustomCommands = {}): string {
  const title = language === "zh" ? "可以直接提问，也可以使用这些命令：" : "Just ask, or use one of these commands:";
  const rows = table.map((row) =>
    language === "zh" ? `- \`/${row.zhName}\` 或 \`/${row.name}\`：${row.zh}` : `- \`/${row.name}\`: ${row.en}`,
  );
  const separator = language === "zh" ? "：" : ": ";
  const own = ownCommands(custom).map(({ name, description }) => `- \`${name}\`${separator}${description}`);
  return [title, ...rows, ...own].join("\n");
}
