/** The rules of infra/prometheus/alerts.yaml as the operator of Prometheus takes them. */
export function alertRuleOf(rules: string): string {
  const indented = rules.split("\n").map((line) => (line === "" ? "" : `  ${line}`));
  return `# Made of infra/prometheus/alerts.yaml by \`npm run k8s-alerts\`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: larkline
spec:
${indented.join("\n")}`;
}
