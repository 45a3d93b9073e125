import type { NormalisedMessage, NormalisedRequest, ScriptedCall, ScriptedReply } from "./model-server-script.ts";

type Tool = NormalisedRequest["tools"][number];

interface Wish {
  tool: string;
  /** The values found in a text, one call each; null = a call without arguments. */
  find(text: string): (string | number[] | null)[];
}

const urlPattern = /https?:\/\/[^\s"'<>，。、）)]+/g;
const sumPattern = /[\d(][\d\s.()]*(?:[-+*/^×÷][\d\s.()]*)+[\d)]/g;
const chartPattern = /(?:\bchart\b|图表)[^\d\n-]{0,20}((?:-?\d+(?:\.\d+)?[\s,，、]*){1,40})/gi;
const isDate = /^\d{4}-\d{1,2}-\d{1,2}$/;

/** The numbers behind a wish for a chart: "chart 3 5 2". */
function chartsOf(text: string): number[][] {
  return [...text.matchAll(chartPattern)].map(([, list = ""]) => (list.match(/-?\d+(?:\.\d+)?/g) ?? []).map(Number));
}

function sumsOf(text: string): string[] {
  const sums = text.replaceAll(urlPattern, " ").replaceAll(chartPattern, " ").match(sumPattern) ?? [];
  return sums
    .map((sum) => sum.trim().replaceAll("×", "*").replaceAll("÷", "/"))
    .filter((sum) => /\d/.test(sum) && !isDate.test(sum));
}

const wishes: readonly Wish[] = [
  { tool: "current_time", find: (text) => (/\btime\b|几点|时间|现在/i.test(text) ? [null] : []) },
  { tool: "calculator", find: sumsOf },
  { tool: "fetch_page", find: (text) => text.match(urlPattern) ?? [] },
  { tool: "bar_chart", find: chartsOf },
];

/** The name a tool gives to its main argument: its first required property, else its first one. */
function argumentName(tool: Tool): string | undefined {
  const { required, properties } = tool.inputSchema;
  if (Array.isArray(required) && typeof required[0] === "string") return required[0];
  return typeof properties === "object" && properties !== null ? Object.keys(properties)[0] : undefined;
}

function callsFor(text: string, tools: readonly Tool[]): ScriptedCall[] {
  const calls: ScriptedCall[] = [];
  for (const wish of wishes) {
    const tool = tools.find((offered) => offered.name === wish.tool);
    if (tool === undefined) continue;
    const name = argumentName(tool);
    for (const value of wish.find(text).slice(0, 4)) {
      calls.push({ name: tool.name, arguments: value === null || name === undefined ? {} : { [name]: value } });
    }
  }
  return calls;
}

function lastUserAt(messages: readonly NormalisedMessage[]): number {
  return messages.findLastIndex((message) => message.role === "user" && message.text !== "");
}

function resultLines(round: readonly NormalisedMessage[], zh: boolean): string[] {
  const names = new Map(round.flatMap((message) => message.calls.map((call) => [call.id, call.name] as const)));
  return round.flatMap((message) =>
    message.results.map((result) => {
      const name = names.get(result.id) ?? "tool";
      const text = result.content.slice(0, 600);
      if (!result.isError) return `- **${name}**: ${text}`;
      return zh ? `- **${name}** 没有成功：${text}` : `- **${name}** failed: ${text}`;
    }),
  );
}

function echo(text: string, zh: boolean): string {
  return zh
    ? `收到：“${text}”。\n\n我是不需要密钥的演示模型。可以问我现在几点、算一道题（例如 12*7）、画图表 3 5 2，或者发一个网址让我读。`
    : `You said: "${text}".\n\nI am the demo model that needs no key. Ask me for the time, a sum such as 12*7, a chart 3 5 2, or send a URL for me to read.`;
}

function tale(zh: boolean): string {
  const line = zh
    ? "这一段话慢慢地写出来，好让你看见它正在生成。"
    : "This sentence is written slowly so that you can watch. ";
  return line.repeat(8);
}

/**
 * The scripted model of demos: answers in the language of the user (Chinese or English), calls
 * `current_time`, `calculator`, `fetch_page` and `bar_chart` when they are offered and asked for, several at
 * once, and then reports their results. "slow" or "慢" makes it stream slowly.
 */
export function demoScript(request: NormalisedRequest): ScriptedReply {
  const at = lastUserAt(request.messages);
  const text = request.messages[at]?.text ?? "";
  const zh = /[\u4e00-\u9fff]/.test(text);
  const lines = resultLines(request.messages.slice(at + 1), zh);
  const pace = /\bslow\b|慢/i.test(text) ? { firstDelayMs: 300, delayMs: 150 } : {};
  if (lines.length > 0) return { text: `${zh ? "查到了：" : "Here is what I found:"}\n\n${lines.join("\n")}`, ...pace };
  const calls = callsFor(text, request.tools);
  if (calls.length > 0) return { text: zh ? "我来查一下。" : "Let me look that up.", calls, ...pace };
  return "delayMs" in pace ? { text: tale(zh), ...pace } : { text: echo(text, zh) };
}
