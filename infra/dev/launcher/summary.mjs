import { text } from "./texts.mjs";

function addressOf(plan, service) {
  const entry = plan.ports.find((one) => one.service === service);
  const host = ["0.0.0.0", "::"].includes(plan.host) ? "127.0.0.1" : plan.host;
  return entry === undefined ? undefined : `http://${host}:${entry.port}`;
}

/** What runs and what is connected to what, for the person who started it. */
export function summaryOf({ plan, redis, logs }) {
  const playground = addressOf(plan, "playground");
  const { feishu, model } = plan;
  const rows = [
    [text("labelPlayground"), feishu.kind === "simulator" ? playground : undefined],
    [text("labelApi"), `${addressOf(plan, "ingress")}  (npm run chat)`],
    [
      text("labelFeishu"),
      feishu.kind === "real" ? text("feishuReal", feishu.appId, feishu.domain) : text("feishuSimulator"),
    ],
    [text("labelModel"), model.kind === "vendor" ? model.models : text("modelScripted")],
    [text("labelRedis"), redis],
    [text("labelTools"), `${addressOf(plan, "tool-runner")}  ${text("tools")}`],
    [text("labelLogs"), logs],
  ];
  const lines = rows.flatMap(([label, value]) => (value === undefined ? [] : [`  ${label}\t${value}`]));
  return ["", text("running"), ...lines, text("howToStop")].join("\n");
}
