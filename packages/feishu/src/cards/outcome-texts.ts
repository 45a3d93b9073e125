import type { ReplyLanguage } from "@larkline/protocol";
import type { ShownTool } from "@larkline/protocol/reply-view";

/*
 * The loop, the workers and the runners tell a model in fixed English why a call was refused, cancelled or not
 * answered. Cards translate these sentences for people; the model keeps the English.
 *
 * A text may hold several of these sentences in a row, followed by text of a person or a program. The sentences are
 * translated one by one; from the first unknown sentence on the text stays unchanged.
 */

/** A sentence as the model reads it, with its variable parts as groups, and the same in Chinese. */
type Sentence = readonly [said: RegExp, chinese: string | ((...parts: string[]) => string)];

const notRun = "没有执行。";

/** Why a call is not permitted. */
const reasons: readonly Sentence[] = [
  [/^the policy here does not allow it$/, "这里的策略不允许"],
  [
    /^people have rejected (\d+) calls of this turn, so nobody is asked any more$/,
    (count = "") => `本次任务已有 ${count} 个调用被拒绝，不再询问`,
  ],
  [
    /^people are asked about (\d+) calls of a step at most$/,
    (count = "") => `一步中最多就 ${count} 个调用询问批准`,
  ],
  [/^the approval was given for other arguments$/, "批准针对的是另外的参数"],
];

const sentences: readonly Sentence[] = [
  // packages/agent: calls that do not begin.
  [
    /^tool_not_found: there is no tool named (.{1,200}?)\. Use only the tools you were given\./,
    (name = "") => `没有名为 ${name} 的工具。`,
  ],
  [
    /^This is the third step in a row that calls (\S{1,100}) with the same arguments\. It was not run: the result would be the same\. Use what you have, try something else, or say what you could not do\./,
    (name = "") => `模型连续第三步以相同的参数调用 ${name}，结果不会不同，${notRun}`,
  ],
  [
    /^Too many calls at once: at most (\d+) are run\. This one was not run\./,
    (count = "") => `一次调用过多，最多执行 ${count} 个。这一个${notRun}`,
  ],
  [/^The arguments are not valid JSON\. The tool was not run\./, `参数不是有效的 JSON，${notRun}`],
  [
    /^The arguments must be a JSON object\. The tool was not run\./,
    `参数必须是 JSON 对象，${notRun}`,
  ],
  [/^The arguments are nested too deeply\. The tool was not run\./, `参数嵌套过深，${notRun}`],
  [
    /^The arguments are too large \((\d+) bytes, at most (\d+)\)\. The call was not run\./,
    (bytes = "", most = "") => `参数过大（${bytes} 字节，最多 ${most}），${notRun}`,
  ],
  [
    /^permission_denied: nobody approved this call in time\. It was not run\./,
    `没有人在期限内批准，${notRun}`,
  ],
  [
    /^permission_denied: nobody could be asked to approve this call\. It was not run\./,
    `无法请人批准，${notRun}`,
  ],
  [
    /^permission_denied: the question whether to run this call was withdrawn\. It was not run\./,
    `批准请求已撤回，${notRun}`,
  ],
  [/^permission_denied: this call was not approved\. It was not run\./, `没有获得批准，${notRun}`],
  [
    /^permission_denied: the approval of this call was not found again\. It was not run\./,
    `找不到这次调用的批准，${notRun}`,
  ],
  [
    /^permission_denied: the rule that allowed this call does not hold any more\. It was not run\./,
    `允许这次调用的规则已经失效，${notRun}`,
  ],
  [
    /^permission_denied: ([^]{1,2000}?)\. The call was not run\./,
    (why = "") => `不允许：${firstOf(reasons, why)?.chinese ?? why}。${notRun}`,
  ],
  [/^Do not try other ways to the same end: say what you could not do\./, ""],
  [/^User rejected this action\./, "这个操作被拒绝了。"],
  // Turns that end before their calls do.
  [/^cancelled: the user stopped this turn\./, "已取消：任务被停止。"],
  [/^cancelled: the user took the message back\./, "已取消：消息被撤回。"],
  [/^cancelled: the user wrote a newer message\./, "已取消：收到了新的消息。"],
  [/^cancelled: this turn was cancelled\./, "已取消。"],
  [/^cancelled$/, "已取消。"],
  [/^If the call had started, it may have taken effect\./, "如果已经开始执行，可能已经生效。"],
  [
    /^The turn was given up; it is not known whether this call took effect\./,
    "任务已放弃，不确定这次调用是否已经生效。",
  ],
  [
    /^The turn was given up before anybody allowed this call\. It was not run\./,
    `任务在有人批准之前就放弃了，${notRun}`,
  ],
  // Unknown outcomes.
  [
    /^It is not known whether this call took effect\. Do not repeat it; tell the user that its effect must be checked\./,
    "不确定是否已经生效，请检查。",
  ],
  [
    /^A person has checked this call: it took effect\. Its own result is lost\./,
    "已有人确认生效，原来的结果已丢失。",
  ],
  [
    /^The outcome of this call is unknown, and a person decided not to try it again\./,
    "结果未知，已有人决定不再重试。",
  ],
  // apps/agent-worker: calls without an answer.
  [
    /^tool_not_found: the runner '([^']{1,100})' of this tool (?:is not running, and the call was not answered|is not there, and nobody answered the call) in time\./,
    (runner = "") => `提供这个工具的 ${runner} 不在线，没有按时得到结果。`,
  ],
  [/^timeout: no answer before the deadline\./, "超时：没有按时得到结果。"],
  [/^The call was not run\./, notRun],
  [/^It had been started and may have taken effect\./, "已经开始执行，可能已经生效。"],
  [
    /^internal_error: (?:no runner is known for|nobody runs) this call\./,
    `内部错误：没有可以执行它的 runner，${notRun}`,
  ],
  [
    /^internal_error: the runner's answer is not readable\. The call may have taken effect\./,
    "内部错误：工具的结果无法读取，可能已经生效。",
  ],
  [
    /^tool_not_found: there is no tool '([^']{1,100})'\./,
    (name = "") => `没有名为 ${name} 的工具。`,
  ],
  [
    /^The stored result cannot be read at the moment\. Try again later\./,
    "保存的结果暂时无法读取。",
  ],
  [
    /^This conversation has no stored result of that handle, or not any more \(7 days\)\./,
    "这个对话没有这个编号的结果，或已过期（7 天）。",
  ],
  // packages/runner and packages/tool-kit: calls that a runner took.
  [
    /^tool_changed: the tool changed while the call waited for it; it was not run\. Look at its description and call it again/,
    `等待期间工具已更新，${notRun}`,
  ],
  [/^the call was not started before its deadline/, `没有在期限内开始，${notRun}`],
  [/^the call was already answered/, "这次调用已经有结果了。"],
  [
    /^the call was refused by its runner, which cannot see who asks for it; it was not run/,
    `runner 无法确认调用的来源，已拒绝，${notRun}`,
  ],
  [/^the runner could not work on the call/, "runner 无法处理这次调用。"],
  [
    /^outcome unknown: the call was started, but its runner stopped before it could report\. It was not run again\. Check whether it took effect before repeating it/,
    "结果未知：已经开始执行，但 runner 在报告之前停止了。没有重新执行，请检查是否已经生效。",
  ],
  [
    /^tool (\S{1,100}) did not answer within (\d+) ms and was stopped/,
    (tool = "", ms = "") => `超时：${tool} 在 ${secondsOf(ms)} 秒内没有结果，已停止。`,
  ],
  [
    /^tool (\S{1,100}) did not answer within (\d+) ms/,
    (tool = "", ms = "") => `超时：${tool} 在 ${secondsOf(ms)} 秒内没有结果。`,
  ],
  [
    /^The program was stopped after (\d+) ms\. Do less in one run\./,
    (ms = "") => `超时：程序运行 ${secondsOf(ms)} 秒后被停止。`,
  ],
  [/^the call's deadline was reached/, "超时：已到期限。"],
  [/^the runner was stopped during the call/, "runner 在执行期间停止了。"],
  [/^; whether it took effect is unknown: check before repeating/, "不确定是否已经生效，请检查。"],
  [
    /^tool_changed: the tool changed while the call waited; it was not run/,
    `等待期间工具已更新，${notRun}`,
  ],
  [
    /^no process was free for the call before its deadline; it was not run/,
    `期限之前没有空闲的进程，${notRun}`,
  ],
  [
    /^outcome unknown: its runner died during the call/,
    "结果未知：runner 在执行期间停止了，可能已经生效。",
  ],
  [
    /^unknown tool "?([^";]{1,100})"?; it was not run/,
    (name = "") => `runner 没有工具 ${name}，${notRun}`,
  ],
  [/^the arguments are not valid JSON; the tool was not run/, `参数不是有效的 JSON，${notRun}`],
  [/^the arguments exceed (\d+) characters/, (count = "") => `参数超过 ${count} 个字符，${notRun}`],
  [/^the tool failed without a message/, "工具失败，没有说明原因。"],
  // packages/sandbox: programs that are stopped.
  [/^The run was cancelled\./, "已取消。"],
  [
    /^The program needed more than (\d+) MB of memory and was stopped\. Work on less data at a time\./,
    (count = "") => `程序需要的内存超过 ${count} MB，已停止。`,
  ],
  [
    /^The program wrote more than (\d+) bytes of output and was stopped\. Print less, or write to a file in the working directory\./,
    (count = "") => `程序的输出超过 ${count} 字节，已停止。`,
  ],
  [
    /^The program wrote more than (\d+) MB, or more than (\d+) files, and was stopped\./,
    (size = "", files = "") => `程序写入超过 ${size} MB 或 ${files} 个文件，已停止。`,
  ],
  [
    /^The program was stopped after (\d+) s of CPU time\. Do less in one run\./,
    (seconds = "") => `超时：程序用了 ${seconds} 秒 CPU 时间后被停止。`,
  ],
  [
    /^The program ended without a result \(([^)]{1,100})\)\./,
    (how = "") => `程序结束，没有结果（${how}）。`,
  ],
];

const label: Readonly<Record<string, string>> = { Reason: "理由", Note: "备注" };

function secondsOf(ms: string): string {
  return String(Math.round(Number(ms) / 100) / 10);
}

/** The sentence that a text begins with. */
function firstOf(
  known: readonly Sentence[],
  text: string,
): { length: number; chinese: string } | undefined {
  for (const [said, chinese] of known) {
    const found = said.exec(text);
    if (found === null) continue;
    const [whole, ...parts] = found;
    return {
      length: whole.length,
      chinese: typeof chinese === "string" ? chinese : chinese(...parts),
    };
  }
  return undefined;
}

/** What a call answered, or why it did not, as it is shown to people. */
export function saidOutcome(
  { state, output = "" }: Pick<ShownTool, "state" | "output">,
  language: ReplyLanguage,
): string {
  const isOurs =
    state === "failed" ||
    state === "stopped" ||
    output.startsWith("A person has checked this call");
  return language === "zh" && isOurs ? inChinese(output) : output;
}

function inChinese(text: string): string {
  let said = "";
  let rest = text;
  for (;;) {
    const gap = said === "" ? "" : (/^\s*/.exec(rest)?.[0] ?? "");
    const next = firstOf(sentences, rest.slice(gap.length));
    if (next === undefined) break;
    said += `${gap.includes("\n") ? "\n" : ""}${next.chinese}`;
    rest = rest.slice(gap.length + next.length);
  }
  if (said === "") return text;
  return `${said}${rest.replaceAll(/^(Reason|Note): /gm, (_, name: string) => `${label[name]}：`)}`;
}
