import type { Approval, RunEvent } from "@larkline/sdk";

const answerRuler = "=".repeat(60);

/** The lines at the start of the program. */
export function openingText(texts: Texts): string {
  return `${texts.started}\n${"-".repeat(40)}\n`;
}

/** What stands before an answer. */
export function answerOpening(texts: Texts): string {
  return `\n${answerRuler}\n${texts.assistant}`;
}

/** What stands after an answer, however it ended. */
export function answerClosing(): string {
  return `\n${answerRuler}\n`;
}

/** Draws one answer. What a worker published before it died is not drawn twice. */
export class AnswerView {
  readonly #texts: Texts;
  /** Text of this step stands on the screen. */
  #hasText = false;
  readonly #seen = new Set<string>();

  constructor(texts: Texts) {
    this.#texts = texts;
  }

  /** What the next event adds to the screen. */
  draw(event: RunEvent): string {
    if (event.type === "tool_use" || event.type === "tool_result") {
      const key = `${event.type} ${event.id}`;
      if (this.#seen.has(key)) return "";
      this.#seen.add(key);
    }
    if (event.type === "step_restarted" && !this.#hasText) return "";
    if (event.type === "text_delta") this.#hasText = true;
    else if (endsText.has(event.type)) this.#hasText = false;
    return eventText(event, this.#texts);
  }
}

/** What a tool has said of its failure: the code before it is for programs. */
function reasonIn(error: string): string {
  return error.replace(/^tool_execution_error: /, "");
}

/** Text that comes after these is not that of the step before. */
const endsText: ReadonlySet<RunEvent["type"]> = new Set([
  "turn_start",
  "step_restarted",
  "tool_use",
  "tool_result",
]);

/** What an event adds to the screen; empty for events (and unknown types) that show nothing. */
export function eventText(event: RunEvent, texts: Texts): string {
  switch (event.type) {
    case "text_delta":
      return printable(event.text);
    case "tool_use":
      return `\n\n${texts.calling(printable(event.toolName))}\n`;
    case "tool_result": {
      const { isError, output, result = output, toolName } = event;
      const say = isError ? texts.failed : texts.finished;
      return `${say(printable(toolName), printable(previewOf(isError ? reasonIn(output) : result)))}\n\n${texts.assistant}`;
    }
    case "error": {
      const { message, suggestion } = event;
      const words = [message, suggestion].filter((line) => line !== "").join("\n");
      return `\n${texts.error(printable(words))}${answerClosing()}`;
    }
    case "done":
      return `${endText(event, texts)}${answerClosing()}`;
    case "step_restarted":
      return `\n${texts.restarted}\n${texts.assistant}`;
    default:
      return "";
  }
}

/** Ends in which the model had its say; a notice may stand beside it. */
const answered: ReadonlySet<string> = new Set(["", "max_tokens", "refusal", "output_invalid"]);

/** The texts at the end that are not on the screen yet. */
function endText(
  { reason, final, reply = final, notes = [] }: RunEvent & { type: "done" },
  texts: Texts,
): string {
  const rest = (reply.startsWith(final) ? reply.slice(final.length) : reply).trim();
  const words = answered.has(reason)
    ? rest
    : texts.error(rest === "" ? texts.stopped(reason) : rest);
  const lines = [words, ...notes].filter((line) => line !== "");
  return lines.map((line) => `\n${printable(line)}`).join("");
}

const previewLength = 100;

/**
 * The short form of a tool's result: strings as they are, everything else as JSON; more than 100
 * characters become the first 100 and `...`. Characters are code points, so none is cut in half.
 */
function previewOf(value: unknown): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "null");
  // 200 UTF-16 units hold 100 code points at least; the rest need not be split up.
  const characters = Array.from(text.slice(0, 2 * previewLength + 2));
  return characters.length > previewLength
    ? `${characters.slice(0, previewLength).join("")}...`
    : text;
}

/** Text of models and tools without control characters: it must not steer the terminal. */
export function printable(text: string): string {
  return [...text].filter((character) => isPrintable(character.codePointAt(0) ?? 0)).join("");
}

function isPrintable(code: number): boolean {
  if (code === 0x0a || code === 0x09) return true;
  return code >= 0x20 && (code < 0x7f || code > 0x9f);
}

/** `taken`: it counts. `closed`: decided before, or expired. `not_allowed`: others have to. `failed`: try again. */
export type DecideResult = "taken" | "closed" | "not_allowed" | "failed";

/** What the terminal client says, in one language. */
export interface Texts {
  started: string;
  you: string;
  assistant: string;
  goodbye: string;
  cancelled: string;
  /** After Ctrl-C, when the server did not confirm that it stops. */
  mayGoOn: string;
  /** Stands before an answer that begins anew; what was shown of it so far is void. */
  restarted: string;
  calling(tool: string): string;
  finished(tool: string, preview: string): string;
  failed(tool: string, preview: string): string;
  error(message: string): string;
  unreachable(address: string): string;
  /** A run that ended before its answer, for a reason that is said in one word. */
  stopped(reason: string): string;
  tokenRefused: string;
  refused(status: number, reason: string): string;
  cutOff: string;
  question: Record<Approval["kind"], (tool: string) => string>;
  risk: Record<Approval["risk"], string>;
  notShown(characters: number): string;
  callChoices: string;
  callChoicesAlways: string;
  outcomeChoices: string;
  notUnderstood: string;
  /** Stands before a question of the assistant. */
  asks: string;
  yourAnswer: string;
  decided: Record<DecideResult, string>;
}

const zh: Texts = {
  started: "流式助手已启动 (输入 'quit' 退出)",
  you: "你: ",
  assistant: "助手: ",
  goodbye: "再见!",
  cancelled: "[已取消]",
  mayGoOn: "服务器没有确认取消，回答可能仍在进行。",
  restarted: "[回答中断，重新开始]",
  calling: (tool) => `[正在调用工具: ${tool}]`,
  finished: (tool, preview) => `[工具 ${tool} 执行完成]: ${preview}`,
  failed: (tool, preview) => `[工具 ${tool} 执行失败]: ${preview}`,
  error: (message) => `[错误]: ${message}`,
  unreachable: (address) => `无法连接 ${address}，请先运行 npm start，或用 --url 指定地址。`,
  stopped: (reason) => `运行已停止（${reason}）。`,
  tokenRefused: "服务器要求令牌：请把 API_TOKEN 设为与服务器相同的值。",
  refused: (status, reason) => `服务器拒绝了请求（${status}）：${reason}`,
  cutOff: "连接中断，回答不完整。",
  question: {
    call: (tool) => `[需要批准] 助手要执行 ${tool}，参数：`,
    outcome: (tool) => `[结果未知] ${tool} 可能已经生效，参数：`,
    rule: (tool) => `[需要批准] 以后不再询问 ${tool}，例如：`,
  },
  risk: { low: "风险：低", medium: "风险：中", high: "风险：高" },
  notShown: (characters) => `（还有 ${characters} 个字符没有显示）`,
  callChoices: "批准吗？y 批准，n [原因] 拒绝: ",
  callChoicesAlways: "批准吗？y 批准，a 始终允许，n [原因] 拒绝: ",
  outcomeChoices: "怎么办？r 再执行一次，d [说明] 标记为完成，x 放弃: ",
  notUnderstood: "请输入其中一个字母。",
  asks: "[助手提问]",
  yourAnswer: "你的回答: ",
  decided: {
    taken: "[已记录]",
    closed: "[已有决定或已过期]",
    not_allowed: "[需要其他人决定]",
    failed: "[没有生效，请再试一次]",
  },
};

const en: Texts = {
  started: "Streaming assistant started (enter 'quit' to leave)",
  you: "You: ",
  assistant: "Assistant: ",
  goodbye: "Goodbye!",
  cancelled: "[Cancelled]",
  mayGoOn: "The server did not confirm the cancel: the answer may continue.",
  restarted: "[The answer was interrupted and begins anew]",
  calling: (tool) => `[Calling tool: ${tool}]`,
  finished: (tool, preview) => `[Tool ${tool} finished]: ${preview}`,
  failed: (tool, preview) => `[Tool ${tool} failed]: ${preview}`,
  error: (message) => `[Error]: ${message}`,
  unreachable: (address) =>
    `Cannot reach ${address}: run npm start first, or name the address with --url.`,
  stopped: (reason) => `The run was stopped (${reason}).`,
  tokenRefused: "The server asks for a token: set API_TOKEN to the server's value.",
  refused: (status, reason) => `The server refused the request (${status}): ${reason}`,
  cutOff: "The connection broke, the answer is incomplete.",
  question: {
    call: (tool) => `[Approval needed] The assistant wants to run ${tool} with:`,
    outcome: (tool) => `[Outcome unknown] ${tool} may have taken effect. It was called with:`,
    rule: (tool) => `[Approval needed] Run ${tool} without asking from now on, such as:`,
  },
  risk: { low: "Risk: low", medium: "Risk: medium", high: "Risk: high" },
  notShown: (characters) => `(${characters} more characters are not shown)`,
  callChoices: "Approve? y approve, n [reason] reject: ",
  callChoicesAlways: "Approve? y approve, a always allow, n [reason] reject: ",
  outcomeChoices: "What now? r run it again, d [note] mark as done, x give it up: ",
  notUnderstood: "Please type one of the letters.",
  asks: "[The assistant asks]",
  yourAnswer: "Your answer: ",
  decided: {
    taken: "[Noted]",
    closed: "[Decided before, or expired]",
    not_allowed: "[Others have to decide this]",
    failed: "[Not taken, please try again]",
  },
};

export const languages = ["zh", "en"] as const;
export type Language = (typeof languages)[number];

/** The texts of the client; `zh` is its default language. */
export const chatTexts: Readonly<Record<Language, Texts>> = { zh, en };
