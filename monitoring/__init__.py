"""What people see of the driver's metrics: dashboards, made into Grafana's files, and a page of alerts."""
