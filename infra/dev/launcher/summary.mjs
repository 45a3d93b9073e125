import { isCheckout } from "./paths.mjs";
import { addressOf } from "./plan.mjs";
import { text } from "./texts.mjs";

function addressIn(plan, service) {
  const entry = plan.ports.find((one) => one.service === service);
  return entry === undefined ? undefined : addressOf(entry);
}

/** What runs and what is connected to what, for the person who started it. */
export function summaryOf({ plan, redis, logs }) {
  const playground = addressIn(plan, "playground");
  const { feishu, model } = plan;
  const [chat, add] = isCheckout
    ? ["npm run chat", "npm run -s runner -- add"]
    : ["npx larkline chat", "npx larkline runner add"];
  const rows = [
    [text("labelPlayground"), feishu.kind === "simulator" ? playground : undefined],
    [text("labelApi"), `${addressIn(plan, "ingress")}  (${chat})`],
    [text("labelConsole"), addressIn(plan, "console")],
    [
      text("labelFeishu"),
      feishu.kind === "real"
        ? text("feishuReal", feishu.appId, feishu.domain)
        : text("feishuSimulator"),
    ],
    [text("labelModel"), model.kind === "vendor" ? model.models : text("modelScripted")],
    [text("labelRedis"), redis],
    [text("labelTools"), `${addressIn(plan, "tool-runner")}  ${text("tools", add)}`],
    [text("labelLogs"), logs],
  ];
  const lines = rows.flatMap(([label, value]) =>
    value === undefined ? [] : [`  ${label}\t${value}`],
  );
  return ["", text("running"), ...lines, text("howToStop")].join("\n");
}
