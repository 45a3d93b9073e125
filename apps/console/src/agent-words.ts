import type { ReplyLanguage } from "@larkline/protocol";

/** Words of the page of one agent. */
export const agentWords = {
  changesAre: {
    zh: "这里的修改对之后开始的消息生效，不用重启；配置文件是上限。每次修改成为一个版本，并写入审计日志。",
    en: "What is changed here counts for messages that begin afterwards, without a restart; the file is the bound. Each change is a version, and the audit log has it.",
  },
  changesAreOff: {
    zh: "配置文件没有允许在控制台修改智能体（console.changes）。",
    en: "The file does not allow changes of agents at the console (console.changes).",
  },
  agentIsGone: {
    zh: "配置文件里没有这个智能体，它的版本不生效。",
    en: "The file has no such agent: its versions do not count.",
  },
  action: { zh: "操作", en: "Action" },
  instructions: { zh: "指令", en: "Instructions" },
  instructionsHint: { zh: "留空表示与配置文件相同。", en: "Empty: as in the file." },
  instructionsHidden: { zh: "只读角色看不到指令。", en: "Viewers do not see instructions." },
  modelOfFile: { zh: "与配置文件相同", en: "As in the file" },
  modelHint: {
    zh: "可选的是配置文件允许用户为这个智能体选择的模型（models），以及在“模型”页面添加的模型。",
    en: "Those that the file lets people choose for this agent (models), and those added on the page Models.",
  },
  allowedTools: { zh: "可用的工具", en: "Tools that it may use" },
  toolsHint: { zh: "全部勾选表示与配置文件相同。", en: "All of them: as in the file." },
  everyTool: { zh: "所有工具", en: "every tool" },
  laterTools: {
    zh: "与配置文件相同：所有工具，包括以后新增的",
    en: "As in the file: every tool, later ones too",
  },
  limitsHint: {
    zh: "留空表示与配置文件相同；不能超过括号里配置文件的值。",
    en: "Empty: as in the file; at most the file's number, in brackets.",
  },
  "limits.maxIterations": { zh: "每轮的模型步数", en: "Model steps of a turn" },
  "limits.maxOutputTokens": { zh: "每步输出 tokens", en: "Output tokens of a step" },
  "limits.maxCallsPerStep": { zh: "每步的工具调用数", en: "Calls of a step" },
  "limits.toolTimeoutMs": { zh: "工具调用最长时间（毫秒）", en: "Longest tool call (ms)" },
  "budgets.day.tokens": { zh: "每天 tokens", en: "Tokens a day" },
  "budgets.day.usd": { zh: "每天费用（$）", en: "Money a day ($)" },
  "budgets.month.tokens": { zh: "每月 tokens", en: "Tokens a month" },
  "budgets.month.usd": { zh: "每月费用（$）", en: "Money a month ($)" },
  noLimit: { zh: "不限", en: "none" },
  changeNote: { zh: "修改原因", en: "Why" },
  preview: { zh: "预览差异", en: "Preview" },
  apply: { zh: "应用为新版本", en: "Apply as a new version" },
  changesToApply: { zh: "将要修改", en: "What changes" },
  noDifference: {
    zh: "与现在的版本没有差异。",
    en: "There is no difference to the present version.",
  },
  isApplied: {
    zh: "已应用。各 worker 几秒内采用。",
    en: "It is applied. Every worker takes it up within seconds.",
  },
  wasChangedMeanwhile: {
    zh: "其他管理员刚刚修改了它：请再看一次差异。",
    en: "Another operator has changed it meanwhile: look at the differences once more.",
  },
  notAllowedByFile: { zh: "配置文件不允许这个版本。", en: "The file does not allow this version." },
  tooManyVersions: { zh: "保存的版本太多。", en: "Too many versions are stored." },
  fieldsAreWrong: { zh: "有些字段不正确，见下。", en: "Some fields are wrong: see below." },
  isAboveFile: { zh: "超过配置文件的值：", en: "More than the file allows: " },
  isNotOffered: { zh: "配置文件没有提供：", en: "Not offered by the file: " },
  isTooLong: { zh: "太长，最多 20000 个字符。", en: "Too long: at most 20,000 characters." },
  isNoNumber: { zh: "请填写数字。", en: "Give a number." },
  presentVersion: { zh: "现在生效", en: "in force" },
  asInFile: { zh: "配置文件", en: "The file" },
  versions: { zh: "版本", en: "Versions" },
  noVersions: { zh: "没有修改过。", en: "Never changed." },
  versionBeforeIsGone: {
    zh: "前一个版本已不再保存。",
    en: "The version before is not kept any more.",
  },
  goBackTo: { zh: "恢复到此版本", en: "Go back to this" },
  versionIsRefused: {
    zh: "已损坏，或不是本部署的 worker 签署的：不生效。",
    en: "Damaged, or not sealed by a worker of this deployment: it does not count.",
  },
  fileHasChanged: {
    zh: "这个版本之后，配置文件里的这个智能体变了。",
    en: "The agent has changed in the file since this version was made.",
  },
  doesNotCount: { zh: "这个版本的以下部分不生效", en: "Of this version does not count" },
} satisfies Record<string, Record<ReplyLanguage, string>>;
