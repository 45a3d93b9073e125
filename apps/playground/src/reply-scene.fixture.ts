import { setTimeout as delay } from "node:timers/promises";
import type { OpenCard } from "./card-bot.fixture.ts";

type Part = Record<string, unknown>;

const plain = (content: string): Part => ({ tag: "plain_text", content });

const panel = (id: string, title: string, elements: Part[]): Part => ({
  tag: "collapsible_panel",
  element_id: id,
  expanded: false,
  header: { title: plain(title) },
  border: { color: "grey", corner_radius: "5px" },
  elements,
});

const tool = (title: string, output?: string): Part =>
  output === undefined
    ? { tag: "div", text: { ...plain(title), text_size: "notation" } }
    : panel(`t${title.length}`, title, [
        { tag: "markdown", text_size: "notation", content: `\`\`\`\n${output}\n\`\`\`` },
      ]);

const stop: Part = {
  tag: "button",
  element_id: "stop",
  text: plain("停止"),
  type: "default",
  size: "small",
  behaviors: [{ type: "callback", value: { larkline: "stop" } }],
};

/** A reply as it stands before its first word. */
export function replyCard(): Part {
  return {
    schema: "2.0",
    config: {
      update_multi: true,
      streaming_mode: true,
      streaming_config: {
        print_frequency_ms: { default: 30 },
        print_step: { default: 5 },
        print_strategy: "fast",
      },
    },
    body: { direction: "vertical", elements: [{ tag: "markdown", element_id: "answer", content: "…" }, stop] },
  };
}

const thinking = "要比较三个方案，先查当前的队列深度，再看昨天的峰值，最后给出建议。";

const answer = `### 队列运行正常，可以再加一个副本

当前有 **12** 个会话在等待，比昨天同一时间少 35%。下面是三个方案的比较：

| 方案 | 首字时间 | 成本 |
|---|---|---|
| 维持 2 个副本 | 1.9 s | 基准 |
| 加到 3 个副本 | **1.1 s** | +18% |
| 换用快速模型 | 0.7 s | +45% |

建议先加到 **3 个副本**，命令如下：

\`\`\`sh
kubectl scale deployment agent-worker --replicas=3
\`\`\`

1. 观察十分钟内的 \`turn_wait_seconds\`
2. 如果仍高于 1.5 s，再考虑换模型

详细数据见[运行手册](https://example.com/runbook)。`;

const before = (element: Part): { action: string; params: Part } => ({
  action: "add_elements",
  params: { type: "insert_before", target_element_id: "answer", elements: [element] },
});
const change = (element_id: string, element: Part): { action: string; params: Part } => ({
  action: "update_element",
  params: { element_id, element },
});
const tools = (...elements: Part[]): Part => panel("tools", `工具 ${elements.length}`, elements);

/** Thinks, calls two tools, types an answer and ends, as long as `pauseMs` between the steps makes it. */
export async function playReply(card: OpenCard, pauseMs: number): Promise<void> {
  await delay(pauseMs);
  await card.batch([
    before(panel("thinking", "思考中…", [{ tag: "markdown", element_id: "thinking_text", content: thinking }])),
  ]);
  await delay(pauseMs * 3);
  await card.batch([before(tools(tool("⏳ queue_depth")))]);
  await delay(pauseMs * 4);
  const depth = tool("✅ queue_depth · 0.4 秒", '{ "waiting": 12, "running": 48 }');
  await card.batch([change("tools", tools(depth, tool("⏳ metrics_range")))]);
  await delay(pauseMs * 5);
  const range = tool("✅ metrics_range · 1.2 秒", "p50 1.1s\np99 3.8s");
  await card.batch([change("tools", tools(depth, range))]);
  for (let end = 24; end < answer.length; end += 24) {
    await card.content("answer", answer.slice(0, end));
    await delay(pauseMs);
  }
  await card.content("answer", answer);
  await card.batch([
    change(
      "thinking",
      panel("thinking", "思考过程", [{ tag: "markdown", element_id: "thinking_text", content: thinking }]),
    ),
    { action: "delete_elements", params: { element_ids: ["stop"] } },
    {
      action: "add_elements",
      params: {
        type: "append",
        elements: [
          {
            tag: "div",
            element_id: "footer",
            text: {
              ...plain("claude-sonnet · 输入 2,184 · 输出 316 token · $0.0113 · 6.8 秒"),
              text_size: "notation",
              text_color: "grey",
            },
          },
        ],
      },
    },
  ]);
  await card.finish("队列运行正常，可以再加一个副本");
}
